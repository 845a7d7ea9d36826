"""Rewards that are verified, not learned."""

from .math import AsyncMathReward, MathReward, async_math_reward, math_reward
from .registry import REWARDS, get_reward


__all__ = ["REWARDS", "AsyncMathReward", "MathReward", "async_math_reward", "get_reward", "math_reward"]
