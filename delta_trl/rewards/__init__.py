"""Rewards that are verified, not learned."""

import warnings
from typing import Any

from .choice import MultipleChoiceReward, multiple_choice_reward
from .code import CodeReward, code_reward
from .math import MathReward, math_reward
from .registry import REWARDS, get_reward


__all__ = [
    "REWARDS",
    "CodeReward",
    "MathReward",
    "MultipleChoiceReward",
    "code_reward",
    "get_reward",
    "math_reward",
    "multiple_choice_reward",
]


def __getattr__(name: str) -> Any:
    """Accept the former asynchronous names for one release, with a warning."""
    plain = name.removeprefix("async_").removeprefix("Async")
    if plain == name or plain not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"`{name}` is called `{plain}` now, and the old name will be removed. `{plain}` is not a coroutine: to await "
        f"it, use `asyncio.to_thread({plain}, ...)`.",
        FutureWarning,
        stacklevel=2,
    )
    return globals()[plain]
