"""The machine's faults are never the program's: each is made to happen."""

import errno
import resource
import subprocess
import sys
import threading

import psutil
import pytest

from delta_trl.sandbox import Limits, Outcome, Sandbox, SandboxUnavailableError, TestsError, grade, parse_tests, worker
from delta_trl.sandbox.pool import WorkerError


INHERITED = """\
import os, resource, signal
from delta_trl.sandbox import Sandbox, grade, parse_tests
tests = parse_tests({"test_list": ["assert f(1) == 2"]})
signals = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGALRM))"
def check():
    with Sandbox(workers=1) as sandbox:
        assert grade(sandbox, "def f(x): return x + 1", tests).verdict == "passed"
        assert sandbox.run(signals).stdout == b"set() 0\\n"
        assert sandbox.run("import os; print('LD_LIBRARY_PATH' in os.environ)").stdout == b"False\\n"
        if os.getuid() == 0:
            assert sandbox.run("import os; print(os.getgroups())").stdout == b"[]\\n"
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM})
for one in (signal.SIGALRM, signal.SIGCHLD, signal.SIGINT): signal.signal(one, signal.SIG_IGN)
os.environ["LD_LIBRARY_PATH"] = "/usr/lib"
if os.getuid() == 0:
    os.setgroups([1])
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held = [os.dup(0) for _ in range(1100)]
check()
os.close(1); os.close(2)
check()
"""


@pytest.mark.processes
def test_what_a_trainer_passes_on():
    """Signals, descriptors above 1,023, none for its output."""
    done = subprocess.run([sys.executable, "-c", INHERITED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("limit", "needed"), [("RLIMIT_NPROC", 64), ("RLIMIT_NOFILE", 128), ("RLIMIT_AS", 2048 << 20)]
)
def test_an_inherited_limit_is_named(monkeypatch, limit, needed):
    real = resource.getrlimit
    lowered = getattr(resource, limit)

    def getrlimit(kind):
        return (value, value) if kind == lowered else real(kind)

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    value = needed
    of_a_call = Limits(memory_mb=2048)
    assert of_a_call.lowered() is None
    value = needed - 1
    with pytest.raises(SandboxUnavailableError, match=f"{limit} of this process is {value}, .* need {needed}"):
        Sandbox(workers=1).run("", limits=of_a_call)


SUITE = parse_tests({"test": "assert f(1) == 2"})
SLOW = "import time\ndef f(x): time.sleep(0.8); return 2"


@pytest.mark.processes
@pytest.mark.parametrize("which", [-1, -2, -3], ids=["the program", "the tests", "the zygote"])
def test_what_is_killed_from_outside_runs_again(tier, which):
    with Sandbox(tier=tier, workers=1) as sandbox:
        grade(sandbox, "def f(x): return 2", SUITE)
        worker = psutil.Process(sandbox._pool.idle[0].process.pid)

        def kill():
            processes = [worker, *worker.children(recursive=True)]
            processes[which].kill()

        threading.Timer(0.4, kill).start()
        assert grade(sandbox, SLOW, SUITE).verdict == "passed"


@pytest.fixture
def waits(monkeypatch):
    """Instead of waiting, the seconds between attempts."""
    waits = []
    monkeypatch.setattr("delta_trl.sandbox.retries.time.sleep", waits.append)
    return waits


class LittleProcessorTime(Limits):
    """The kernel sends SIGXCPU after this time and SIGKILL a second later, long before the clock's time is over."""

    cpu_seconds = 1


def test_a_kill_for_too_much_processor_time_is_the_program_s_fault(one_worker, waits):
    """Also for time in the kernel."""
    code = "import os, signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: os.urandom(1 << 20)"
    result = one_worker.run(code, limits=LittleProcessorTime(wall_seconds=30))
    assert result.outcome is Outcome.TIMEOUT
    assert not waits  # it is not tried again


BUSY = """\
import signal, time
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
def f(x):
    while time.process_time() < 1.1: pass
    return 2
"""


def test_a_program_that_takes_too_much_processor_time_does_not_pass(one_worker):
    """The tests wait for what it returns, and do not see what it took."""
    result = grade(one_worker, BUSY, SUITE, LittleProcessorTime(wall_seconds=30), stop_at_failure=False)
    assert str(result) == "timeout on test 1 of 1"
    assert result.passed == 0


@pytest.mark.parametrize(
    ("failing", "error", "outcome"),
    [
        (2, WorkerError("lost"), Outcome.OK),
        (3, OSError(errno.ENOSPC, "no space"), Outcome.SANDBOX_ERROR),
    ],
)
def test_a_shortage_is_not_the_program_s_fault(one_worker, monkeypatch, waits, failing, error, outcome):
    execute = worker.Worker.execute
    failures = [error] * failing

    def fails(*arguments):
        if failures:
            raise failures.pop()
        return execute(*arguments)

    monkeypatch.setattr(worker.Worker, "execute", fails)
    one_worker._pool.idle.clear()
    assert one_worker.run("print(1)").outcome is outcome
    assert waits == [0.1, 0.2]


def test_a_worker_that_cannot_start_says_why(monkeypatch, waits):
    monkeypatch.setattr(worker, "BOOTSTRAP", "raise SystemExit('no libpython')")
    result = Sandbox(tier="A", workers=1).run("")
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert b"no libpython" in result.stderr


def test_tests_that_end_before_the_program_begins_have_decided(sandbox):
    """As on a busy machine. Reading a text this long takes the program's process a while."""
    tests = parse_tests({"test": "from no_such_module import *\nassert f()"})
    with pytest.raises(TestsError, match="no_such_module"):
        grade(sandbox, "#" + "x" * (8 << 20), tests)


@pytest.mark.processes
def test_a_program_that_has_no_time_to_begin_is_not_judged(one_worker, waits):
    result = one_worker.run("#" + "x" * (8 << 20), limits=Limits(wall_seconds=0.005))
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert len(waits) == 2


def test_a_program_whose_process_fails_at_its_start_is_not_judged(one_worker, waits):
    """No text of a job to read: the machine's fault, however far the tests' process has come."""
    suite = {"kind": "suite", "setup": "", "units": ["f()"], "entry_point": None, "stop_at_failure": True}
    result = one_worker.execute([suite, {"no": "kind"}], Limits())
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert len(waits) == 2
