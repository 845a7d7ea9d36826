"""Rewards that are verified, not learned."""

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
