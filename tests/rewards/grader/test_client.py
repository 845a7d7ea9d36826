import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from delta_trl.rewards import MathReward
from delta_trl.rewards.grader import client, process
from delta_trl.rewards.grader.client import GraderProcess, check_answers
from delta_trl.sandbox.pool import WorkerPool

from ...sandbox.test_lifecycle import descendants, wait_until


# A gold or an answer that is this word never ends, raises, ends the process, has it killed, or takes 2 GiB.
FAULTS = """\
import os
from delta_trl.rewards.grader import comparison
def judge(gold, answer, judge=comparison.judge):
    while "hangs" in (gold, answer): pass
    if "raises" in (gold, answer): raise ValueError
    if answer == "crashes": os._exit(3)
    if (answer or "").startswith("killed"): os.kill(os.getpid(), 9)
    return bytearray(1 << 31) if "large" in (gold, answer) else judge(gold, answer)
comparison.judge = judge
main(*"""


@pytest.fixture(autouse=True)
def faults(monkeypatch):
    monkeypatch.setattr(client, "BOOTSTRAP", client.BOOTSTRAP.replace("main(*", FAULTS))


@pytest.fixture
def new_pool():
    with contextlib.closing(WorkerPool(2, GraderProcess)) as pool:
        yield pool


@pytest.fixture(scope="module")
def pool():
    with contextlib.closing(WorkerPool(2, GraderProcess)) as pool:
        yield pool


def run(pool, *pairs, seconds=3.0):
    return check_answers(pool, list(pairs), seconds)


@pytest.mark.processes
def test_a_stuck_worker_costs_one_item(pool):
    pairs = [("1", "1"), ("hangs", "1"), ("1", "hangs"), ("2", "2"), ("3", "4")]
    assert run(pool, *pairs, seconds=0.5) == ["right", "unusable gold", "timeout", "right", "wrong"]


@pytest.mark.processes
def test_a_worker_killed_at_work_costs_nothing(pool):
    """One kill, from outside: its item is tried again, and the others are not touched."""
    run(pool, ("1", "1"), ("2", "2"))

    def at_work():
        return [worker for worker in pool.workers if worker not in pool.idle]

    def kill_one_at_work():
        assert wait_until(at_work)
        time.sleep(0.2)
        at_work()[0].process.kill()

    killer = threading.Thread(target=kill_one_at_work)
    killer.start()
    assert run(pool, ("1", "hangs"), ("1", "1"), seconds=0.5) == ["timeout", "right"]
    killer.join()


@pytest.mark.processes
def test_workers_that_are_killed_again_and_again_cost_no_other_item(pool):
    """They have started: only workers that do not start end a batch."""
    killed = [("1", f"killed {i}") for i in range(3)]
    others = [("1", str(i)) for i in range(30)]
    verdicts = run(pool, *killed, *others)
    assert verdicts[:3] == ["not checked"] * 3
    assert verdicts[3:] == ["wrong", "right"] + ["wrong"] * 28


@pytest.mark.processes
def test_a_worker_waits_longer_than_its_last_item_might_have_taken(new_pool):
    """The alarm that ends a check ends nothing after it."""
    assert run(new_pool, ("1", "1"), seconds=0.5) == ["right"]
    [worker] = new_pool.workers
    time.sleep(0.5 + process.GRACE_SECONDS + 0.3)
    assert worker.process.poll() is None


@pytest.mark.processes
def test_an_answer_that_gets_no_processor_time_is_no_unusable_gold(pool, monkeypatch):
    """The gold alone decides about None: here it passes under the same load."""
    monkeypatch.setattr(GraderProcess, "cpu_seconds", lambda self: 0.0)
    assert run(pool, ("1", "hangs"), ("hangs", "1"), ("1", "1"), seconds=0.3) == ["timeout", "not checked", "right"]


@pytest.mark.processes
def test_memory_is_bounded(pool, caplog):
    """A worker that ran out of memory or crashed is not used again, and none has to be replaced."""
    pairs = [("1", "large"), ("large", "1"), ("1", "1"), ("1", "crashes")]
    assert run(pool, *pairs) == ["memory", "unusable gold", "right", "crash"]
    assert all(worker.reusable for worker in pool.idle)
    assert not caplog.records


@pytest.mark.parametrize(
    ("gold", "answer", "reward", "verdict", "metric"),
    [
        ("1", "raises", 0.0, "error: ValueError", "failed_checks"),
        ("raises", "1", None, "unusable gold", "unusable_gold"),
        ("1", "crashes", 0.0, "crash", "failed_checks"),
        pytest.param("1", "large", 0.0, "memory", "failed_checks", marks=pytest.mark.processes),
        pytest.param("1", "hangs", 0.0, "timeout", "timeouts", marks=pytest.mark.processes),
    ],
)
def test_what_a_reward_logs_of_a_failed_check(pool, monkeypatch, gold, answer, reward, verdict, metric):
    """Beside a right answer. The gold alone decides about None."""
    monkeypatch.setattr("delta_trl.rewards.math.get_pool", lambda size: pool)
    columns, metrics = {}, {}
    hooks = {"log_extra": columns.__setitem__, "log_metric": metrics.__setitem__}
    completions = [rf"\boxed{{{text}}}" for text in (answer, 2)]
    assert MathReward()(completions, [gold, "2"], **hooks) == [reward, 1.0]
    assert columns["verdict"] == [verdict, "right"]
    assert {name for name, share in metrics.items() if share} == {f"math_reward/{metric}"}
    assert metrics[f"math_reward/{metric}"] == 0.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BOOTSTRAP", "raise OSError('no memory')"),
        ("BOOTSTRAP", "import time; time.sleep(60)"),
        ("sys.executable", "/no/such/python"),
    ],
)
def test_an_outage_is_not_a_wrong_answer(pool, new_pool, monkeypatch, caplog, name, value):
    """A batch gives up after a few starts: each may take a minute to fail."""
    assert run(pool, ("1", "1")) == ["right"]
    before = descendants()
    monkeypatch.setattr(client, "START_SECONDS", 0.3)
    monkeypatch.setattr(f"delta_trl.rewards.grader.client.{name}", value)
    pairs = [("1", str(i)) for i in range(20)]
    assert run(new_pool, *pairs) == ["not checked"] * 20
    assert len(caplog.records) <= client.MAX_FAILED_STARTS + new_pool.size  # as many may be starting already
    assert descendants() == before


def test_a_worker_that_cannot_import_says_why(new_pool, monkeypatch, capfd):
    broken = "import sys; sys.modules['latex2sympy2_extended'] = None\n" + client.BOOTSTRAP
    monkeypatch.setattr(client, "BOOTSTRAP", broken)
    assert run(new_pool, ("1", "1")) == ["not checked"]
    assert "latex2sympy2_extended" in capfd.readouterr().err


def test_workers_are_few_and_light(new_pool, monkeypatch):
    """A worker that imported torch would take seconds to start and hundreds of megabytes, times every rank."""
    monkeypatch.setenv("PYTHONHASHSEED", "1")  # as some trainers set it
    assert new_pool.workers == []
    for _ in range(3):
        assert run(new_pool, ("1/2", r"\frac{2}{4}")) == ["right"]
    (worker,) = new_pool.workers  # one job needs one worker, which is used again
    process = psutil.Process(worker.process.pid)
    assert process.environ()["PYTHONHASHSEED"] == "0"
    assert process.memory_info().rss < 200 << 20
    loaded = " ".join(memory.path for memory in process.memory_maps())
    assert "torch" not in loaded
    assert "gmpy2" not in loaded
    new_pool.close()
    assert worker.process.returncode == -signal.SIGKILL  # its end was waited for


def test_a_worker_waits_for_jobs_as_long_as_its_parent_is_there(monkeypatch):
    monkeypatch.setattr(process, "PARENT_CHECK_SECONDS", 0.01)
    jobs, host = multiprocessing.Pipe()
    with jobs, host:
        assert process.read_job(jobs, parent_pid=os.getppid() + 1) is None  # though the pipe is open
        threading.Timer(0.1, host.send_bytes, [b'["1"]']).start()
        assert process.read_job(jobs, parent_pid=os.getppid()) == ["1"]
        host.close()
        assert process.read_job(jobs, parent_pid=os.getppid()) is None


SCRIPT = r"""
from delta_trl.rewards.grader.client import check_answers, get_pool
pool = get_pool(2)
check_answers(pool, [("1", "1"), ("2", "2")], 3.0)
print(*[worker.process.pid for worker in pool.workers], flush=True)
check_answers(pool, [(r"\int_0^\infty \sin(x^x)\,dx", "1")] * 2, 1.0)  # sympy does not get anywhere with it
"""


@pytest.mark.processes
def test_nothing_is_left_after_kill_9():
    """Also of workers that are at work."""
    trainer = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    workers = [psutil.Process(int(pid)) for pid in trainer.stdout.readline().split()]
    time.sleep(0.5)
    trainer.kill()
    trainer.communicate()
    assert workers

    def gone(worker):
        return not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE

    assert wait_until(lambda: all(map(gone, workers)), seconds=8.0)


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
