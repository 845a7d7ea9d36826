"""Rewards by name, for recipes: a registered name, or a dotted path to the user's own function."""

import difflib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RegisteredReward:
    """
    Where a registered reward lives. Nothing is imported before the reward is asked for.

    Args:
        module (`str`): Module that holds it.
        function (`str`, *optional*):
            Attribute used when no options are given; `None` if the reward cannot do without options.
        factory (`str`, *optional*): Attribute called with the options; `None` if the reward has none.
    """

    module: str
    function: str | None = None
    factory: str | None = None

    def load(self, attribute: str) -> Callable:
        return getattr(importlib.import_module(self.module), attribute)


REWARDS = {
    "math_reward": RegisteredReward("delta_trl.rewards.math", "math_reward", "MathReward"),
    "async_math_reward": RegisteredReward("delta_trl.rewards.math", "async_math_reward", "AsyncMathReward"),
    "code_reward": RegisteredReward("delta_trl.rewards.code", "code_reward", "CodeReward"),
    "async_code_reward": RegisteredReward("delta_trl.rewards.code", "async_code_reward", "AsyncCodeReward"),
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
        ValueError: If the name is unknown, or an option is unknown or missing; the message says what was given and
            what there is.
        ImportError: If the user's module exists and fails to import something itself.
    """
    if name in REWARDS:
        return _load_registered(name, REWARDS[name], options)
    if "." in name:
        return _bind(name, _import_dotted(name), options)
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
    _check_options(name, factory, options)
    return factory(**options)


def _check_options(name: str, factory: Callable, options: dict) -> None:
    parameters = inspect.signature(factory).parameters
    unknown = [option for option in options if option not in parameters]
    required = [key for key, value in parameters.items() if value.default is value.empty]
    missing = [key for key in required if key not in options]
    if not unknown and not missing:
        return
    problem = f"does not know {', '.join(map(repr, unknown))}" if unknown else f"needs {', '.join(map(repr, missing))}"
    nearest = difflib.get_close_matches(unknown[0], parameters, n=1) if unknown else []
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    raise ValueError(f"Reward {name!r} {problem}{hint}; its options are {', '.join(parameters)}.")


def _import_dotted(path: str) -> Callable:
    module_name, attribute = path.rsplit(".", 1)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the user's module misses is the user's error, and its own message says more than ours.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        nearest = difflib.get_close_matches(path, REWARDS, n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise ValueError(
            f"Unknown reward {path!r}: there is no module {error.name!r}.{hint} Known rewards are "
            f"{', '.join(sorted(REWARDS))}."
        ) from error
    if not hasattr(module, attribute):
        nearest = difflib.get_close_matches(attribute, dir(module), n=1)
        hint = f" Did you mean {module_name}.{nearest[0]}?" if nearest else ""
        raise ValueError(f"Unknown reward {path!r}: module {module_name!r} has no {attribute!r}.{hint}")
    function = getattr(module, attribute)
    if callable(function):
        return function
    raise ValueError(f"Reward {path!r} is not callable: {function!r}.")


def _bind(name: str, function: Any, options: dict) -> Callable:
    if inspect.isclass(function):  # a callable class, configured by its constructor
        _check_options(name, function, options)
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
