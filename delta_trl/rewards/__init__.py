"""Rewards that are verified, not learned."""

from .math import AsyncMathReward, MathReward, async_math_reward, math_reward
from .multiple_choice import MultipleChoiceReward, multiple_choice_reward
from .registry import REWARDS, get_reward


__all__ = [
    "REWARDS",
    "AsyncMathReward",
    "MathReward",
    "MultipleChoiceReward",
    "async_math_reward",
    "get_reward",
    "math_reward",
    "multiple_choice_reward",
]
