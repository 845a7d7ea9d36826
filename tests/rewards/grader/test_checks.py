import multiprocessing
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from delta_trl.rewards import MathReward
from delta_trl.rewards.grader import checks, process
from delta_trl.rewards.grader.checks import GraderProcess, check_answers
from delta_trl.sandbox.pool import WorkerPool


HARD_GOLD = r"\int_0^\infty \sin(x^x)\,dx"  # sympy does not get anywhere with it: it cannot be used


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool(2, GraderProcess)
    yield pool
    pool.close()


@pytest.fixture
def new_pool():
    pool = WorkerPool(2, GraderProcess)
    yield pool
    pool.close()


def run(pool, *pairs, seconds=3.0):
    return check_answers(pool, list(pairs), seconds)


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def test_workers_start_lazily_and_are_reused(new_pool):
    assert new_pool.workers == []
    assert run(new_pool, ("1", "1")) == ["right"]
    first = [worker.process.pid for worker in new_pool.workers]
    assert len(first) == 1  # one job needs one worker
    assert run(new_pool, ("1", "2")) == ["wrong"]
    assert [worker.process.pid for worker in new_pool.workers] == first


def test_a_stuck_worker_costs_one_item(pool):
    pairs = [("1", "1"), (HARD_GOLD, "1"), ("2", "2"), ("3", "4")]
    assert run(pool, *pairs, seconds=0.8) == ["right", "unusable gold", "right", "wrong"]


def test_a_worker_killed_at_work_costs_nothing(pool):
    """One kill, from outside: its item is tried again, and the others are not touched."""
    run(pool, ("1", "1"), ("2", "2"))

    def at_work():
        return [worker for worker in pool.workers if worker not in pool.idle]

    def kill_one_at_work():
        wait_until(at_work)
        time.sleep(0.2)
        at_work()[0].process.kill()

    killer = threading.Thread(target=kill_one_at_work)
    killer.start()
    assert run(pool, (HARD_GOLD, "1"), ("1", "1"), seconds=0.8) == ["unusable gold", "right"]
    killer.join()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BOOTSTRAP", "import os; os.kill(os.getpid(), 9)"),
        ("BOOTSTRAP", "raise OSError('no memory')"),
        ("sys.executable", "/no/such/python"),
    ],
)
def test_an_outage_is_not_a_wrong_answer(pool, new_pool, monkeypatch, name, value):
    assert run(pool, ("1", "1")) == ["right"]
    monkeypatch.setattr(f"delta_trl.rewards.grader.checks.{name}", value)
    assert run(new_pool, ("1", "1")) == ["not checked"]


def test_a_worker_that_cannot_import_says_why(new_pool, monkeypatch, capfd):
    broken = "import sys; sys.modules['math_verify'] = None\n" + checks.BOOTSTRAP
    monkeypatch.setattr(checks, "BOOTSTRAP", broken)
    monkeypatch.setattr(GraderProcess, "has_started", False)
    with pytest.raises(RuntimeError, match="cannot start"):
        run(new_pool, ("1", "1"))
    assert "math_verify" in capfd.readouterr().err


def test_descriptors_of_1024_and_more(new_pool):
    """`select` takes none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert run(new_pool, ("1", "1")) == ["right"]
        assert new_pool.workers[0].pipe.fileno() > 1024
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_memory_is_bounded(new_pool, monkeypatch):
    monkeypatch.setattr(checks, "MEMORY_LIMIT", 400 << 20)
    (verdict,) = run(new_pool, (HARD_GOLD, r"\operatorname{zeros}(9999,9999)"))
    assert verdict != "right"
    assert run(new_pool, ("1", "1")) == ["right"]


def test_workers_are_light(pool):
    """A worker that imported torch would take seconds to start and hundreds of megabytes, times every rank."""
    run(pool, ("1", r"\frac{2}{2}"))
    process = psutil.Process(pool.workers[0].process.pid)
    assert process.memory_info().rss < 200 << 20
    assert not [m.path for m in process.memory_maps() if "torch" in m.path or "gmpy2" in m.path]


def test_a_forked_child_starts_its_own_workers():
    reward = MathReward()
    assert reward([r"\boxed{1}"], ["1"]) == [1.0]
    with multiprocessing.get_context("fork").Pool(1) as child:
        assert child.apply(reward, ([r"\boxed{1}", r"\boxed{2}"], ["1", "1"])) == [1.0, 0.0]
    assert reward([r"\boxed{2}"], ["2"]) == [1.0]


SCRIPT = """
    import sys, threading, time
    from delta_trl.rewards.grader.checks import check_answers, get_pool
    pool = get_pool(2)
    check_answers(pool, [("1", "1"), ("2", "2")], 3.0)
    print(*[worker.process.pid for worker in pool.workers], flush=True)
    {then}
"""


def start_script(then):
    script = textwrap.dedent(SCRIPT.format(then=then))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    return process, [int(pid) for pid in process.stdout.readline().split()]


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_worker_waits_for_jobs_as_long_as_its_parent_is_there(monkeypatch):
    monkeypatch.setattr(process, "PARENT_CHECK_SECONDS", 0.01)
    jobs, host = multiprocessing.Pipe()
    with jobs, host:
        assert process.read_job(jobs, parent_pid=os.getppid() + 1) is None  # though the pipe is open
        threading.Timer(0.1, host.send_bytes, [b'{"gold": "1"}']).start()
        assert process.read_job(jobs, parent_pid=os.getppid()) == {"gold": "1"}
        host.close()
        assert process.read_job(jobs, parent_pid=os.getppid()) is None


@pytest.mark.processes
@pytest.mark.parametrize(
    "then",
    ["time.sleep(60)", f"check_answers(pool, [({HARD_GOLD!r}, '1')] * 2, 1.0)"],
    ids=["idle", "at work"],
)
def test_nothing_is_left_after_kill_9(then):
    process, workers = start_script(then)
    time.sleep(0.5)
    process.kill()
    process.wait()
    process.stdout.close()
    assert workers
    wait_until(lambda: all(map(gone, workers)), seconds=8.0)


@pytest.mark.processes
def test_nothing_is_left_at_exit():
    process, workers = start_script("")
    assert process.wait(timeout=20) == 0
    process.stdout.close()
    wait_until(lambda: all(map(gone, workers)))


@pytest.mark.processes
def test_the_users_script_is_not_run_again(tmp_path):
    """No `if __name__ == "__main__"` guard, as most training scripts have none."""
    (tmp_path / "train.py").write_text(
        "print('started', flush=True)\nfrom delta_trl.rewards import math_reward\n"
        "print(math_reward(['\\\\boxed{1}'], ['1']))\n"
    )
    (tmp_path / "code.py").write_text("raise RuntimeError('shadows the standard library')\n")
    result = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines() == ["started", "[1.0]"], result.stderr
