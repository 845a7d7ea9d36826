"""Workers start late, end with the trainer however it ends, and are replaced when they are lost."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from delta_trl.sandbox import Limits, Outcome, Sandbox, SandboxUnavailableError, TestsError, grade, parse_tests
from delta_trl.sandbox import sandbox as sandbox_module
from delta_trl.sandbox.grading import CallTests
from delta_trl.sandbox.worker import TierError, WorkerError


def wait_until(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def family(sandbox: Sandbox) -> list[psutil.Process]:
    """The processes of idle workers."""
    workers = [psutil.Process(worker.process.pid) for worker in sandbox._pool.idle]
    return [process for worker in workers for process in [worker, *worker.children(recursive=True)]]


def test_starts_late_and_leaves_nothing(each_tier):
    before = set(psutil.Process().children(recursive=True))
    with Sandbox(tier=each_tier, workers=1) as sandbox:
        assert set(psutil.Process().children(recursive=True)) == before
        sandbox.run("print(1)")
        *_, zygote = family(sandbox)  # programs run as the user that it is, also for the host
        assert os.getuid() != 0 or 0 not in zygote.uids()
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            sandbox.run("print(1)")
        assert len(os.listdir("/proc/self/fd")) == descriptors
    assert set(psutil.Process().children(recursive=True)) == before


@pytest.mark.processes
def test_nothing_outlives_the_trainer(each_tier):
    """However it ends: three trainers at once, as most of the time is a worker's for noticing."""
    code = (
        "import sys, time, threading\n"
        "from delta_trl.sandbox import Limits, Sandbox\n"
        f"sandbox = Sandbox(tier={each_tier!r}, workers=1)\n"
        "sandbox.run('')\n"
        "program = 'while True: pass'\n"
        "threading.Thread(target=sandbox.run, args=(program, '', Limits(wall_seconds=300)), daemon=True).start()\n"
        "time.sleep(0.3)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    trainers = {
        end: subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for end in (signal.SIGKILL, signal.SIGTERM, None)
    }
    left = {}
    for end, trainer in trainers.items():
        assert trainer.stdout.readline() == b"ready\n"
        left[end] = psutil.Process(trainer.pid).children(recursive=True)
        assert len(left[end]) >= 3, end  # supervisor, zygote, program
        if end is not None:
            trainer.send_signal(end)
        trainer.stdin.close()
        trainer.stdout.close()
        trainer.wait(30)
    for end, processes in left.items():
        assert wait_until(lambda processes=processes: not any(process.is_running() for process in processes)), end


def test_survives_the_thread_that_started_it(each_tier):
    with Sandbox(tier=each_tier, workers=1) as sandbox:
        thread = threading.Thread(target=sandbox.run, args=("",))
        thread.start()
        thread.join()
        processes = family(sandbox)
        assert sandbox.run("print(1)").stdout == b"1\n"
        assert family(sandbox) == processes


def test_a_forked_child_has_its_own_workers(tier):
    with Sandbox(tier=tier, workers=1) as sandbox:
        sandbox.run("")
        child = os.fork()
        if child == 0:
            good = not sandbox._pool.workers and sandbox.run("print(1)").stdout == b"1\n"
            sandbox.close()
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert sandbox.run("print(2)").stdout == b"2\n"


def test_a_worker_killed_at_work_is_replaced(tier):
    with Sandbox(tier=tier, workers=1) as sandbox:
        sandbox.run("")
        worker = sandbox._pool.idle[0]
        threading.Timer(0.3, worker.process.kill).start()
        result = sandbox.run("import time; time.sleep(0.6); print(1)")
        assert (result.outcome, result.stdout) == (Outcome.OK, b"1\n")


def test_a_program_killed_from_outside_runs_again(tier):
    with Sandbox(tier=tier, workers=1) as sandbox:
        sandbox.run("")
        supervisor = psutil.Process(sandbox._pool.idle[0].process.pid)
        threading.Timer(0.3, lambda: supervisor.children(recursive=True)[-1].kill()).start()
        result = sandbox.run("import time; time.sleep(0.6); print(1)")
        assert (result.outcome, result.stdout) == (Outcome.OK, b"1\n")
        assert supervisor.is_running()


def test_a_program_that_ends_every_worker_is_at_fault(tier, monkeypatch):
    """Whatever it is that it does: another program runs, so the machine is not to blame."""
    with Sandbox(tier=tier, workers=1) as sandbox:
        attempt = sandbox._attempt

        def fail(jobs, *arguments):
            if "evil" in jobs[0]["code"]:
                raise WorkerError("lost")
            return attempt(jobs, *arguments)

        monkeypatch.setattr(sandbox, "_attempt", fail)
        assert sandbox.run("evil").outcome is Outcome.KILLED
        monkeypatch.setattr(sandbox, "_attempt", lambda *_: None)
        assert sandbox.run("print(1)").outcome is Outcome.SANDBOX_ERROR


@pytest.mark.parametrize("unit", ["import no_such_module", "assert False"])
def test_tests_that_end_before_the_program_begins_have_decided(tier, unit):
    """As on a busy machine. Reading a text this long takes the program's process a while."""
    suite = {"test": unit}
    with Sandbox(tier=tier, workers=1) as sandbox:
        slow = "#" + "x" * (30 << 20)
        job = {
            "kind": "suite",
            "stop_at_failure": True,
            "setup": "",
            "units": [unit],
            "entry_point": None,
            "without_program": False,
        }
        attempts, attempt = [], sandbox._attempt
        sandbox._attempt = lambda *arguments: attempts.append(1) or attempt(*arguments)
        result = sandbox.execute([job, {"kind": "program", "code": slow}], Limits())
        assert (result.outcome, len(attempts)) == (Outcome.OK, 1)
        assert json.loads(result.reports[0]).keys() == ({"unusable"} if "import" in unit else {"passed", "total"})
        if "import" in unit:
            with pytest.raises(TestsError, match="no_such_module"):
                grade(sandbox, slow, parse_tests(suite))


def test_a_program_whose_process_fails_at_its_start_is_not_judged(tier):
    """No text of a job to read: the machine's fault, however far the tests' process has come."""
    with Sandbox(tier=tier, workers=1) as sandbox:
        suite = {
            "kind": "suite",
            "stop_at_failure": True,
            "setup": "",
            "units": ["f()"],
            "entry_point": None,
            "without_program": False,
        }
        assert sandbox._attempt([suite, {"no": "kind", "inputs": 5}], Limits()) is None


def test_refuses_where_nothing_can_be_isolated(monkeypatch):
    real = sandbox_module.Worker

    def only_unsafe(tier, packages):
        if tier != "unsafe":
            raise TierError("Landlock is turned off")
        return real(tier, packages)

    monkeypatch.setattr(sandbox_module, "Worker", only_unsafe)
    with pytest.raises(SandboxUnavailableError, match=r"Landlock is turned off.*allow_unsafe"):
        Sandbox().run("print(1)")
    with Sandbox(allow_unsafe=True, workers=1) as sandbox:
        assert sandbox.run("print(1)").stdout == b"1\n"
        assert sandbox.tier == "unsafe"


def test_refuses_other_platforms(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(SandboxUnavailableError, match="needs Linux on x86-64 or aarch64, this is Darwin"):
        Sandbox().run("print(1)")


def test_a_tier_that_does_not_hold_is_refused(monkeypatch):
    real = sandbox_module.Worker
    monkeypatch.setattr(sandbox_module, "Worker", lambda tier, packages: real("unsafe", packages))
    with pytest.raises(SandboxUnavailableError, match="was not confined"):
        Sandbox().run("print(1)")


def test_cases_that_a_batch_had_no_time_for_have_their_own(tier):
    code = "import time; time.sleep(float(input())); print(1)"
    with Sandbox(Limits(wall_seconds=0.8), tier=tier, workers=1) as sandbox:
        tests = parse_tests({"inputs": ["0.5"] * 4, "outputs": ["1"] * 4})
        assert grade(sandbox, code, tests).verdict == "passed"
        tests = parse_tests({"inputs": ["0.5"] * 3 + ["2"], "outputs": ["1"] * 4})
        assert str(grade(sandbox, code, tests)) == "timeout on test 4 of 4"


RIGHT = "def f(x): return x + 1"
SUCCESSORS = {"fn_name": "f", "inputs": [[1], [2], [3]], "outputs": [2, 3, 4]}


@pytest.fixture
def busy_host(monkeypatch):
    """A trainer that takes its time."""
    batch = CallTests.batch
    monkeypatch.setattr(CallTests, "batch", lambda *arguments: time.sleep(0.8) or batch(*arguments))


def test_a_program_does_not_pay_for_the_hosts_time(tier, busy_host):
    with Sandbox(Limits(wall_seconds=0.4), tier=tier, workers=1) as sandbox:
        assert grade(sandbox, RIGHT, parse_tests(SUCCESSORS)).verdict == "passed"
        hangs = f"import time\n{RIGHT} if x < 3 else time.sleep(9)"
        assert str(grade(sandbox, hangs, parse_tests(SUCCESSORS))) == "timeout on test 3 of 3"


def test_what_a_case_leaves_is_tidied_up():
    """So that all cases of a program run in one process, each in an empty directory (which only tier A has)."""
    code = (
        "import os, sys; print(os.listdir(), sys.getrecursionlimit())\n"
        "sys.setrecursionlimit(5000); os.makedirs('a/b'); open('a/b/c', 'w').close(); open('d', 'w').close()"
    )
    with Sandbox(tier="A", workers=1) as sandbox:
        result = sandbox.execute([{"kind": "stdin", "code": code, "inputs": [""] * 3}], Limits())
    assert (result.stdout, len(result.reports)) == (b"[] 1000\n" * 3, 3)


def test_attempts_are_apart(tier, monkeypatch, caplog):
    waits = []
    monkeypatch.setattr(sandbox_module.time, "sleep", waits.append)
    with Sandbox(tier=tier, workers=1) as sandbox:
        monkeypatch.setattr(sandbox, "_attempt", lambda *_: None)
        assert sandbox.run("").outcome is Outcome.SANDBOX_ERROR
    assert waits == [0.1, 0.2]
    assert [f"attempt {n} of 3" in message for n, message in enumerate(caplog.messages, start=1)] == [True] * 3


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_shortage_is_not_the_program_s_fault(tier, monkeypatch, failing):
    monkeypatch.setattr(sandbox_module.time, "sleep", lambda seconds: None)
    with Sandbox(tier=tier, workers=1) as sandbox:
        attempt, calls = sandbox._attempt, []
        monkeypatch.setattr(
            sandbox, "_attempt", lambda *job: calls.append(job) or (None if len(calls) <= failing else attempt(*job))
        )
        outcome = sandbox.run("print(1)").outcome
    assert outcome is (Outcome.OK if failing < 4 else Outcome.SANDBOX_ERROR)
