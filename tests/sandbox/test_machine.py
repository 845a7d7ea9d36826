"""The machine's faults are never the program's: each is made to happen."""

import errno
import os
import subprocess
import sys
import threading

import psutil
import pytest

from delta_trl.rewards.code import get_sandbox
from delta_trl.sandbox import Limits, Outcome, Sandbox, TestsError, grade, parse_tests, worker
from delta_trl.sandbox.pool import WorkerError


WORKS = """\
import os, resource, signal, sys
from delta_trl.sandbox import Sandbox, grade, parse_tests
{before}
tests = parse_tests({{"test_list": ["assert f(1) == 2"]}})
signals = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGALRM))"
with Sandbox(workers=1) as sandbox:
    assert grade(sandbox, "def f(x): return x + 1", tests).verdict == "passed"
    assert sandbox.run(signals).stdout == b"set() 0\\n"
    assert sandbox.run("import os; print('LD_LIBRARY_PATH' in os.environ)").stdout == b"False\\n"
"""
BLOCKED = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM}); os.close(1); os.close(2)"
IGNORED = """\
for one in (signal.SIGALRM, signal.SIGCHLD, signal.SIGINT): signal.signal(one, signal.SIG_IGN)
os.environ["LD_LIBRARY_PATH"] = "/usr/lib"
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held = [os.dup(0) for _ in range(1100)]
"""


@pytest.mark.parametrize("before", [BLOCKED, IGNORED])
def test_what_a_trainer_passes_on(before):
    code = WORKS.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


LOWERED = """\
import resource
from delta_trl.sandbox import Sandbox, SandboxUnavailableError
for name in ("RLIMIT_STACK", "RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_FSIZE"):
    resource.setrlimit(getattr(resource, name), (50, 50))
    try:
        Sandbox(workers=1).run("")
    except SandboxUnavailableError as error:
        print(error)
"""


def test_an_inherited_limit_is_named():
    """The first of those that are too low, in the order of `Limits.of_kernel`."""
    done = subprocess.run([sys.executable, "-c", LOWERED], capture_output=True, text=True, timeout=60)
    named = [line.split()[0] for line in done.stdout.splitlines()]
    assert named == ["RLIMIT_STACK", "RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_FSIZE"], done.stderr
    assert Limits().lowered() is None


SUITE = parse_tests({"test": "assert f(1) == 2"})
SLOW = "import time\ndef f(x): time.sleep(0.8); return 2"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("which", "verdict"),
    [
        (-1, lambda sandbox: grade(sandbox, "import time; time.sleep(0.8); print(1)", ONE).verdict),
        (-1, lambda sandbox: grade(sandbox, SLOW, SUITE).verdict),
        (-2, lambda sandbox: grade(sandbox, SLOW, SUITE).verdict),
        (-3, lambda sandbox: grade(sandbox, SLOW, SUITE).verdict),
    ],
    ids=["a program", "a suite's program", "a suite's tests", "the zygote"],
)
def test_what_is_killed_from_outside_runs_again(tier, which, verdict):
    with Sandbox(tier=tier, workers=1) as sandbox:
        grade(sandbox, "def f(x): return 2", SUITE)
        worker = psutil.Process(sandbox._pool.idle[0].process.pid)
        threading.Timer(0.4, lambda: [worker, *worker.children(recursive=True)][which].kill()).start()
        assert verdict(sandbox) == "passed"


ONE = parse_tests({"inputs": [""], "outputs": ["1"]})


@pytest.mark.parametrize("what", ["os.kill(os.getpid(), 9)", "signal.pthread_kill(threading.get_ident(), 9)"])
def test_a_program_cannot_kill_itself(each_tier, what):
    result = get_sandbox(2, each_tier, False).run(f"import os, signal, threading\n{what}")
    assert (result.outcome, b"PermissionError" in result.stderr) == (Outcome.EXCEPTION, True)


@pytest.fixture
def waits(monkeypatch):
    """Instead of waiting, the seconds between attempts."""
    waits = []
    monkeypatch.setattr("delta_trl.sandbox.sandbox.time.sleep", waits.append)
    return waits


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_shortage_is_not_the_program_s_fault(one_worker, monkeypatch, waits, failing):
    execute, failures = worker.Worker.execute, [WorkerError("lost")] * failing

    def fails(*arguments):
        if failures:
            raise failures.pop()
        return execute(*arguments)

    monkeypatch.setattr(worker.Worker, "execute", fails)
    one_worker._pool.idle.clear()
    assert one_worker.run("print(1)").outcome is (Outcome.OK if failing < 3 else Outcome.SANDBOX_ERROR)
    assert waits == [0.1, 0.2][:failing]


def test_inputs_that_the_host_cannot_write(one_worker, monkeypatch, waits):
    real = worker.open_memory

    def full(data=b""):
        if b"large" in data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(data)

    monkeypatch.setattr(worker, "open_memory", full)
    assert one_worker.run("print(1)", "large").outcome is Outcome.SANDBOX_ERROR
    assert one_worker.run("print(1)", "small").outcome is Outcome.OK


def test_a_worker_that_cannot_start_says_why(monkeypatch, waits):
    monkeypatch.setattr(worker, "BOOTSTRAP", "raise SystemExit('no libpython')")
    result = Sandbox(tier="A", workers=1).run("")
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert b"no libpython" in result.stderr


@pytest.mark.parametrize("unit", ["from no_such_module import *", "assert False"])
def test_tests_that_end_before_the_program_begins_have_decided(sandbox, unit):
    """As on a busy machine. Reading a text this long takes the program's process a while."""
    slow, suite = "#" + "x" * (8 << 20), parse_tests({"test": f"{unit}\nassert f()"})
    if "import" in unit:
        with pytest.raises(TestsError, match="no_such_module"):
            grade(sandbox, slow, suite)
    else:
        assert grade(sandbox, slow, suite).verdict == "wrong answer"


@pytest.mark.processes
def test_a_program_that_has_no_time_to_begin_is_not_judged(one_worker, waits):
    result = one_worker.run("#" + "x" * (8 << 20), limits=Limits(wall_seconds=0.005))
    assert (result.outcome, len(waits)) == (Outcome.SANDBOX_ERROR, 2)


def test_a_program_whose_process_fails_at_its_start_is_not_judged(one_worker, waits):
    """No text of a job to read: the machine's fault, however far the tests' process has come."""
    suite = {"kind": "suite", "setup": "", "units": ["f()"], "entry_point": None}
    suite |= {"stop_at_failure": True}
    assert one_worker.execute([suite, {"no": "kind"}], Limits()).outcome is Outcome.SANDBOX_ERROR
    assert len(waits) == 2


@pytest.mark.processes
def test_a_program_does_not_pay_for_the_hosts_time(tier, monkeypatch):
    """A trainer that takes its time to compare."""
    tests = parse_tests({"fn_name": "f", "inputs": [[1], [2], [3]], "outputs": [2, 3, 4]})
    passes = type(tests).passes
    monkeypatch.setattr(type(tests), "passes", lambda *arguments: waiting.wait(0.8) or passes(*arguments))
    waiting = threading.Event()
    with Sandbox(Limits(wall_seconds=0.4), tier=tier, workers=1) as sandbox:
        assert grade(sandbox, "def f(x): return x + 1", tests).verdict == "passed"
        hangs = "import time\ndef f(x): return x + 1 if x < 3 else time.sleep(9)"
        assert str(grade(sandbox, hangs, tests)) == "timeout on test 3 of 3"
