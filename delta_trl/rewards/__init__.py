"""Rewards that are verified, not learned."""

from .choice import MultipleChoiceReward, multiple_choice_reward
from .code import AsyncCodeReward, CodeReward, async_code_reward, code_reward
from .math import AsyncMathReward, MathReward, async_math_reward, math_reward
from .registry import REWARDS, get_reward


__all__ = [
    "REWARDS",
    "AsyncCodeReward",
    "AsyncMathReward",
    "CodeReward",
    "MathReward",
    "MultipleChoiceReward",
    "async_code_reward",
    "async_math_reward",
    "code_reward",
    "get_reward",
    "math_reward",
    "multiple_choice_reward",
]
