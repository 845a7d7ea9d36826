"""Rewards by name, for recipes: a registered name, or a dotted path to the user's own function."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..arguments.lookup import check_options, import_dotted


# Factories of rewards by name. `get_reward` imports only the one that it needs.
FACTORIES = {
    "math_reward": "delta_trl.rewards.math.MathReward",
    "code_reward": "delta_trl.rewards.code.CodeReward",
    "soft_overlong_punishment": "trl.rewards.get_soft_overlong_punishment",
    "repetition_penalty": "trl.rewards.get_repetition_penalty_reward",
}
VERIFIED = ("math_reward", "code_reward")  # which say whether a completion is right
REWARDS = {**FACTORIES, "think_format_reward": "trl.rewards.think_format_reward"}


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
    reward = import_dotted("reward", REWARDS.get(name, name), sorted(REWARDS))
    if not callable(reward):
        raise ValueError(f"Reward {name!r} is {reward!r:.80}: expected a function.")
    if name in FACTORIES or inspect.isclass(reward):  # a callable class is configured by its constructor
        check_options(f"Reward {name!r}", reward, options)
        return reward(**options)
    if not options:
        return reward
    if name in REWARDS:
        raise ValueError(f"Reward {name!r} takes no options, got {', '.join(options)}.")
    bound: Any = functools.partial(reward, **options)
    bound.__name__ = getattr(reward, "__name__", type(reward).__name__)
    return bound


def with_names(rewards: Any) -> Any:
    """A trainer's `reward_funcs`, with the rewards of ours that are given by name. Other texts are TRL's models."""
    if isinstance(rewards, list):
        return list(map(with_names, rewards))
    return get_reward(rewards) if isinstance(rewards, str) and rewards in REWARDS else rewards
