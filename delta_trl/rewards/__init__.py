"""Rewards that are verified, not learned."""

from .code import CodeReward, code_reward
from .math import MathReward, math_reward
from .registry import REWARDS, get_reward


__all__ = [
    "REWARDS",
    "CodeReward",
    "MathReward",
    "code_reward",
    "get_reward",
    "math_reward",
]
