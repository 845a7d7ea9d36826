import gc
import resource
import threading
import time

import pytest

from delta_trl.rewards import MathReward
from delta_trl.rewards.grader.extraction import extract_answer, message_text

from ...corpus.hostile import CASES


TIMEOUT = 1.0


@pytest.fixture(scope="module")
def reward():
    reward = MathReward(timeout=TIMEOUT)
    assert reward([r"\boxed{1/2}"], ["0.5"]) == [1.0]  # starts the workers
    return reward


def work(function, *args):
    """The result and this process's own seconds: neither other processes count nor collecting a large heap."""
    gc.disable()
    try:
        start = time.process_time()
        return function(*args), time.process_time() - start
    finally:
        gc.enable()


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_none_scores_hangs_or_crashes(reward, every):
    """In one batch and from another thread: where the caller runs is the pool's concern alone."""
    assert len(CASES) >= 60
    cases, columns, scores = CASES[every - 1 :: every], {}, []  # of every sixth, one never ends
    batch = [completion for _, _, completion in cases], [gold for _, gold, _ in cases]
    thread = threading.Thread(target=lambda: scores.extend(reward(*batch, log_extra=columns.__setitem__)))
    started = time.monotonic()
    thread.start()
    thread.join()
    right = [name for (name, _, _), score in zip(cases, scores, strict=True) if score not in (0.0, None)]
    assert not right
    assert time.monotonic() - started < len(cases) * (TIMEOUT + 1)
    assert reward([r"\boxed{1}"], ["1"]) == [1.0]


@pytest.mark.parametrize(("name", "completion"), [(name, text) for name, _, text in CASES if name.startswith("text")])
def test_extraction_is_quick(name, completion):
    _, seconds = work(extract_answer, message_text(completion))
    assert seconds < 0.5, name


def test_this_process_stays_small(reward):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reward([r"\boxed{\operatorname{zeros}(99999,99999)}", r"\boxed{(10^8)!}"], ["1", "1"])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
