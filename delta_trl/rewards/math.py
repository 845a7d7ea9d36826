"""The mathematics reward: 1.0 if the final answer equals the gold, 0.0 if not, None if the gold cannot be used."""

import asyncio
from collections.abc import Callable

from .extraction import extract_answer, extract_gold, message_text
from .pool import Job, get_pool


class MathReward:
    """Verified mathematics reward.

    Args:
        timeout: seconds that one check may take; an answer whose check takes longer scores 0.
        num_workers: worker processes of each training process.
    """

    __name__ = "math_reward"

    def __init__(self, timeout: float = 3.0, num_workers: int = 2):
        self.timeout = timeout
        self.num_workers = num_workers

    def __call__(
        self,
        completions: list,
        solution: list[str],
        log_extra: Callable[[str, list], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **kwargs,
    ) -> list[float | None]:
        jobs: dict[tuple[str, str], Job] = {}
        keys = []
        for completion, gold in zip(completions, solution, strict=True):
            gold, answer = extract_gold(gold), extract_answer(message_text(completion))
            if not gold or answer is None:
                keys.append(0.0 if gold else None)
                continue
            keys.append((gold, answer))
            jobs.setdefault((gold, answer), Job(gold, answer, self.timeout))
        get_pool(self.num_workers).run(list(jobs.values()))
        return [self._score(jobs[key].verdict) if isinstance(key, tuple) else key for key in keys]

    @staticmethod
    def _score(verdict: str | None) -> float | None:
        if verdict in (None, "unusable gold"):
            return None
        return float(verdict == "right")


class AsyncMathReward(MathReward):
    """`MathReward` as a coroutine: the trainer runs it together with other async rewards."""

    __name__ = "async_math_reward"

    async def __call__(self, *args, **kwargs) -> list[float | None]:
        return await asyncio.to_thread(super().__call__, *args, **kwargs)


_default = MathReward()


def math_reward(completions: list, solution: list[str], **kwargs) -> list[float | None]:
    """Verified mathematics reward with the default options; see `MathReward`."""
    return _default(completions, solution, **kwargs)


async def async_math_reward(completions: list, solution: list[str], **kwargs) -> list[float | None]:
    """`math_reward` as a coroutine."""
    return await asyncio.to_thread(_default, completions, solution, **kwargs)
