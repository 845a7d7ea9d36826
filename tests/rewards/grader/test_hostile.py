"""Completions that hang, crash or flood a grader."""

import time

import pytest

from delta_trl.rewards import MathReward

from ...corpus.hostile import CASES


TIMEOUT = 1.0


@pytest.mark.processes
def test_none_scores_hangs_or_crashes():
    reward = MathReward(timeout=TIMEOUT)
    assert reward([r"\boxed{1/2}"], ["0.5"]) == [1.0]  # starts the workers
    started = time.monotonic()
    scores = reward([completion for _, _, completion in CASES], [gold for _, gold, _ in CASES])
    right = [name for (name, _, _), score in zip(CASES, scores, strict=True) if score not in (0.0, None)]
    assert not right
    assert time.monotonic() - started < len(CASES) * (TIMEOUT + 1)
    assert reward([r"\boxed{1}"], ["1"]) == [1.0]
