"""
Rewards that are computed, not learned. `math_reward` compares the final answer with the gold, `code_reward` runs the
program against unit tests.
"""

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
