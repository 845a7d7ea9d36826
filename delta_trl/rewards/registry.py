"""Rewards by name, for recipes: a registered name, or a dotted path to the user's own function."""

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..arguments.lookup import check_options, import_dotted


@dataclass(frozen=True)
class RegisteredReward:
    """
    Where a registered reward lives. Nothing is imported before the reward is asked for.

    Args:
        module (`str`): Module that holds it.
        function (`str`, *optional*):
            Attribute used when no options are given; `None` if the reward needs options.
        factory (`str`, *optional*): Attribute called with the options; `None` if the reward has none.
    """

    module: str
    function: str | None = None
    factory: str | None = None

    def load(self, attribute: str) -> Callable:
        return getattr(importlib.import_module(self.module), attribute)


REWARDS = {
    "math_reward": RegisteredReward("delta_trl.rewards.math", "math_reward", "MathReward"),
    "code_reward": RegisteredReward("delta_trl.rewards.code", "code_reward", "CodeReward"),
    "multiple_choice_reward": RegisteredReward(
        "delta_trl.rewards.choice", "multiple_choice_reward", "MultipleChoiceReward"
    ),
    "think_format_reward": RegisteredReward("trl.rewards", function="think_format_reward"),
    "soft_overlong_punishment": RegisteredReward("trl.rewards", factory="get_soft_overlong_punishment"),
    "repetition_penalty": RegisteredReward("trl.rewards", factory="get_repetition_penalty_reward"),
}


def get_reward(name: str, **options: Any) -> Callable:
    """
    The reward function that a recipe names.

    Args:
        name (`str`):
            A name in `REWARDS`, or a dotted path such as `my_module.my_reward`; the current directory is importable,
            as for `trl grpo`.
        **options: Passed to the reward's factory, or bound to the user's function.

    Returns:
        `Callable`: A callable that TRL's trainers accept, picklable, with a `__name__` for the metrics.

    Raises:
        ValueError: If the name is unknown, or an option is unknown or missing; the message names what was given and
            what is accepted.
        ImportError: If the user's module exists and fails to import something itself.
    """
    if name in REWARDS:
        return _load_registered(name, REWARDS[name], options)
    if "." in name:
        return _bind(name, _import_function(name), options)
    nearest = difflib.get_close_matches(name, REWARDS, n=1, cutoff=0)
    raise ValueError(
        f"Unknown reward {name!r}: did you mean {nearest[0]!r}? Known rewards are {', '.join(sorted(REWARDS))}; "
        "your own is given by its dotted path, as in `my_module.my_reward`."
    )


def _load_registered(name: str, entry: RegisteredReward, options: dict) -> Callable:
    if not options and entry.function is not None:
        return entry.load(entry.function)
    if entry.factory is None:
        raise ValueError(f"Reward {name!r} takes no options, got {', '.join(options)}.")
    factory = entry.load(entry.factory)
    check_options(f"Reward {name!r}", factory, options)
    return factory(**options)


def _import_function(path: str) -> Callable:
    function = import_dotted("reward", path, REWARDS)
    if not callable(function):
        raise ValueError(f"Reward {path!r} is not callable: {function!r}.")
    return function


def _bind(name: str, function: Any, options: dict) -> Callable:
    if inspect.isclass(function):  # a callable class, configured by its constructor
        check_options(f"Reward {name!r}", function, options)
        instance: Any = function(**options)
        return instance
    if not options:
        return function
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = [option for option in options if option not in parameters]
    if unknown and not takes_any:
        raise ValueError(f"Reward {name!r} does not take {', '.join(map(repr, unknown))}.")
    bound: Any = functools.partial(function, **options)
    bound.__name__ = getattr(function, "__name__", type(function).__name__)
    return bound
