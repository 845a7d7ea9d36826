"""The machine's faults are never the program's: each is made to happen."""

import errno
import os
import subprocess
import sys
import threading

import psutil
import pytest

from delta_trl.rewards.code import get_sandbox
from delta_trl.sandbox import Limits, Outcome, Sandbox, grade, parse_tests
from delta_trl.sandbox import sandbox as sandbox_module


WORKS = """\
import os, resource, signal, sys
from delta_trl.sandbox import Limits, Sandbox, grade, parse_tests
{before}
tests = parse_tests({{"test_list": ["assert f(1) == 2"]}})
signals = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGALRM))"
with Sandbox(workers=1) as sandbox:
    assert grade(sandbox, "def f(x): return x + 1", tests).verdict == "passed"
    assert sandbox.run(signals).stdout == b"set() 0\\n"
    assert sandbox.run("import os; print('LD_LIBRARY_PATH' in os.environ)").stdout == b"False\\n"
"""


@pytest.mark.parametrize(
    "before",
    [
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM})",
        "[signal.signal(one, signal.SIG_IGN) for one in (signal.SIGALRM, signal.SIGCHLD, signal.SIGINT)]",
        "os.close(1); os.close(2)",
        "os.environ['LD_LIBRARY_PATH'] = '/usr/lib'",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)); held = [os.dup(0) for _ in range(1100)]",
    ],
)
def test_what_a_trainer_passes_on(before):
    code = WORKS.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_number_of_processes(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "")
    assert Sandbox().workers >= 1


@pytest.mark.parametrize("name", ["RLIMIT_FSIZE", "RLIMIT_STACK", "RLIMIT_NPROC", "RLIMIT_NOFILE"])
def test_an_inherited_limit_is_named(name):
    code = (
        f"import resource; kind = resource.{name}; soft, hard = resource.getrlimit(kind)\n"
        "from delta_trl.sandbox import Limits, Sandbox, SandboxUnavailableError\n"
        "resource.setrlimit(kind, (50, 50))\n"
        "try:\n    Sandbox(workers=1).run('')\nexcept SandboxUnavailableError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert name in done.stdout, done.stderr
    assert Limits().lowered() is None


@pytest.mark.parametrize("which", [-1, -2], ids=["the program", "the tests"])
def test_a_suite_that_is_killed_from_outside_runs_again(tier, which):
    suite = parse_tests({"test": "assert f(1) == 2"})
    with Sandbox(tier=tier, workers=1) as sandbox:
        grade(sandbox, "def f(x): return 2", suite)
        supervisor = psutil.Process(sandbox._pool.idle[0].process.pid)
        threading.Timer(0.4, lambda: supervisor.children(recursive=True)[which].kill()).start()
        assert grade(sandbox, "import time\ndef f(x): time.sleep(0.8); return 2", suite).verdict == "passed"


@pytest.mark.parametrize("what", ["os.kill(os.getpid(), 9)", "signal.pthread_kill(threading.get_ident(), 9)"])
def test_a_program_cannot_kill_itself(each_tier, what):
    result = get_sandbox(2, each_tier, False).run(f"import os, signal, threading\n{what}")
    assert (result.outcome, b"PermissionError" in result.stderr) == (Outcome.EXCEPTION, True)


def test_inputs_that_the_host_cannot_write(tier, monkeypatch):
    monkeypatch.setattr(sandbox_module.time, "sleep", lambda seconds: None)
    real = sandbox_module.open_memory

    def fails(data=b""):
        if b"large" in data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(data)

    monkeypatch.setattr(sandbox_module, "open_memory", fails)
    with Sandbox(tier=tier, workers=1) as sandbox:
        assert sandbox.run("print(1)", "large").outcome is Outcome.SANDBOX_ERROR
        assert sandbox.run("print(1)", "small").outcome is Outcome.OK


def test_what_is_not_offered_is_an_import_error(each_tier):
    code = "try:\n    import torch\nexcept ImportError as error:\n    print(error.name)\nimport numpy"
    assert get_sandbox(2, each_tier, False).run(code).stdout == b"torch\n"


def test_a_worker_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setattr("delta_trl.sandbox.worker.BOOTSTRAP", "raise SystemExit('no libpython')")
    result = Sandbox(tier="A", workers=1).run("")
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert b"no libpython" in result.stderr


def test_a_program_that_writes_a_file_costs_no_worker():
    with Sandbox(tier="A", workers=1) as sandbox:
        sandbox.run("")
        (worker,) = sandbox._pool.idle
        for _ in range(2):
            result = sandbox.run("import os; print(os.listdir()); open('x', 'w').write('1')")
            assert result.stdout == b"[]\n"
        assert sandbox._pool.idle == [worker]


def test_memory_is_what_was_promised(tier):
    """What is preloaded does not count."""
    limits = Limits(memory_mb=256)
    assert get_sandbox(2, tier, False).run("x = bytearray(200 << 20)", "", limits).outcome is Outcome.OK
    assert get_sandbox(2, tier, False).run("x = bytearray(300 << 20)", "", limits).outcome is Outcome.MEMORY
