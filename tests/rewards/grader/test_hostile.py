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
    names, golds, completions = map(list, zip(*CASES, strict=True))
    started = time.monotonic()
    scores = reward(completions, golds)
    assert time.monotonic() - started < len(CASES) * (TIMEOUT + 1)
    right = [name for name, score in zip(names, scores, strict=True) if score not in (0.0, None)]
    assert not right
    assert reward([r"\boxed{1}"], ["1"]) == [1.0]
