import gc
import resource
import threading
import time

import pytest

from delta_trl.rewards import MathReward
from delta_trl.rewards.grader.extraction import extract_answer, message_text

from ...corpus.hostile import CASES


TIMEOUT = 2.0
SLACK = 2.0  # for a machine that is busy with other tests


@pytest.fixture(scope="module")
def reward():
    reward = MathReward(timeout=TIMEOUT)
    assert reward([r"\boxed{1/2}"], ["0.5"]) == [1.0]  # starts the workers
    return reward


def elapsed(function, *args):
    start = time.monotonic()
    return function(*args), time.monotonic() - start


def work(function, *args):
    """The result and this process's own seconds: neither other processes count nor collecting a large heap."""
    gc.disable()
    try:
        start = time.process_time()
        return function(*args), time.process_time() - start
    finally:
        gc.enable()


def test_none_scores_hangs_or_crashes(reward):
    assert len(CASES) >= 60
    for name, gold, completion in CASES:
        reward([r"\boxed{1}"], ["1"])  # a worker is running: the last answer may have cost one
        scores, seconds = elapsed(reward, [completion], [gold])
        assert scores in ([0.0], [None]), name
        assert seconds < TIMEOUT + SLACK, (name, seconds)


def test_the_same_from_another_thread(reward):
    """Some of each kind, with one at least that its worker has to be killed for: where the caller runs is the pool's
    concern alone."""
    some = [case for number, case in enumerate(CASES) if number % 8 == 0 or case[0] == "hard gold"]
    columns, results = {}, []
    batch = [case[2] for case in some], [case[1] for case in some]
    thread = threading.Thread(target=lambda: results.append(reward(*batch, log_extra=columns.__setitem__)))
    thread.start()
    thread.join()
    assert set(results[0]) <= {0.0, None}
    assert "timeout" in columns["verdict"]


@pytest.mark.parametrize(("name", "completion"), [(name, text) for name, _, text in CASES if name.startswith("text")])
def test_extraction_is_quick(name, completion):
    _, seconds = work(extract_answer, message_text(completion))
    assert seconds < 0.5, name


def test_extraction_is_linear():
    for unit in ["\\boxed{1} or ", "answer is ", "\\boxed{", "<answer>", "\\[ ", "Answer: not 1. "]:
        _, short = work(extract_answer, unit * 5_000)
        _, long = work(extract_answer, unit * 20_000)
        assert long < 4 * 3 * short + 0.05, (unit, short, long)


def test_this_process_stays_small(reward):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reward([r"\boxed{\operatorname{zeros}(99999,99999)}", r"\boxed{(10^8)!}"], ["1", "1"])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
