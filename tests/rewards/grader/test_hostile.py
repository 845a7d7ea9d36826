"""Completions that hang, crash or flood a grader."""

import threading
import time

import pytest

from delta_trl.rewards import MathReward

from ...corpus.hostile import CASES


TIMEOUT = 1.0


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_none_scores_hangs_or_crashes(every):
    """In one batch and from another thread: where the caller runs is the pool's concern alone."""
    reward = MathReward(timeout=TIMEOUT)
    assert reward([r"\boxed{1/2}"], ["0.5"]) == [1.0]  # starts the workers
    cases, scores = CASES[::every], []
    batch = [completion for _, _, completion in cases], [gold for _, gold, _ in cases]
    thread = threading.Thread(target=lambda: scores.extend(reward(*batch)))
    started = time.monotonic()
    thread.start()
    thread.join()
    right = [name for (name, _, _), score in zip(cases, scores, strict=True) if score not in (0.0, None)]
    assert not right
    assert time.monotonic() - started < len(cases) * (TIMEOUT + 1)
    assert reward([r"\boxed{1}"], ["1"]) == [1.0]
