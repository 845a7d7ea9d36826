"""Workers start late, end with the trainer however it ends, and are replaced when they are lost."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from delta_trl.sandbox import Limits, Sandbox, grade, parse_tests, worker
from delta_trl.sandbox.pool import kill_workers


SUITE = parse_tests({"test": "assert f(1) == 1"})


def wait_until(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def descendants(pid: int | None = None) -> list[psutil.Process]:
    """The processes that this or another process has started, and those that these have."""
    return psutil.Process(pid).children(recursive=True)


def family(sandbox: Sandbox) -> list[psutil.Process]:
    """The processes of the one worker, which is idle."""
    (worker,) = sandbox._pool.idle
    return [psutil.Process(worker.process.pid), *descendants(worker.process.pid)]


def test_starts_late_and_leaves_nothing(each_tier):
    before = descendants()
    with Sandbox(tier=each_tier, workers=1) as sandbox:
        assert descendants() == before
        thread = threading.Thread(target=sandbox.run, args=("print(1)",))  # whose end is not that of the worker
        thread.start()
        thread.join()
        processes = family(sandbox)
        assert "CapEff:\t0000000000000000" in Path(f"/proc/{processes[-1].pid}/status").read_text()
        if os.getuid() == 0:  # the user of programs is another one, also for the host
            assert 0 not in processes[-1].uids()
            assert 0 not in processes[-1].gids()
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            assert sandbox.run("print(1)").stdout == b"1\n"
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert family(sandbox) == processes
    assert descendants() == before


def test_as_many_workers_as_were_asked_for_which_all_end(tier):
    before = descendants()
    with Sandbox(tier=tier, workers=3) as sandbox, ThreadPoolExecutor(4) as threads:
        list(threads.map(sandbox.run, ["import time; time.sleep(0.3)"] * 4))
        assert len(sandbox._pool.idle) == 3
    assert descendants() == before


@pytest.mark.processes
@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_nothing_outlives_the_trainer(each_tier, end):
    code = (
        "import sys, threading, time\n"
        "from delta_trl.sandbox import Limits, Sandbox\n"
        f"sandbox = Sandbox(tier={each_tier!r}, workers=1)\n"
        "sandbox.run('')\n"
        "program = ('while True: pass', '', Limits(wall_seconds=300))\n"
        "threading.Thread(target=sandbox.run, args=program, daemon=True).start()\n"
        "time.sleep(0.3)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    trainer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert trainer.stdout.readline() == b"ready\n"
    left = descendants(trainer.pid)
    assert len(left) >= 2  # zygote, program
    if end is not None:
        trainer.send_signal(end)
    trainer.communicate(timeout=30)
    assert wait_until(lambda: not any(process.is_running() for process in left))


def test_a_killed_worker_is_replaced(one_worker, caplog):
    one_worker.run("print(1)")
    zygote = family(one_worker)[0]
    zygote.kill()
    zygote.wait()
    assert one_worker.run("print(2)").stdout == b"2\n"
    assert not caplog.records  # it was not lent once more


@pytest.mark.processes
def test_a_stuck_worker_is_ended_and_replaced(one_worker, monkeypatch):
    monkeypatch.setattr(worker, "GRACE_SECONDS", 1.0)
    one_worker.run("")
    processes = family(one_worker)
    processes[-1].suspend()
    assert one_worker.run("print(1)", limits=Limits(wall_seconds=1)).stdout == b"1\n"
    assert wait_until(lambda: not any(process.is_running() for process in processes))


def test_a_forked_child_has_its_own_workers(one_worker):
    """Also while its parent has lent all of them. They end with it, even at work."""
    with one_worker._pool.borrow():
        child = os.fork()
        if child == 0:
            threading.Timer(20.0, os._exit, [1]).start()
            good = not one_worker._pool.workers and one_worker.run("print(1)").stdout == b"1\n"
            with one_worker._pool.borrow() as own:
                kill_workers()
                os._exit(0 if good and own.process.returncode is not None else 1)
        _, status = os.waitpid(child, 0)
    assert status == 0
    assert one_worker.run("print(2)").stdout == b"2\n"


def test_what_a_program_leaves_is_tidied_up():
    """So that all cases run in one process and all programs on one worker, each in an empty directory (of tier A)."""
    code = (
        "import os, sys; print(os.listdir(), sys.getrecursionlimit())\n"
        "sys.setrecursionlimit(5000); os.makedirs('a/b'); open('a/b/c', 'w').close(); open('d', 'w').close()"
    )
    with Sandbox(tier="A", workers=1) as sandbox:
        sandbox.run("")
        processes = family(sandbox)
        files = [process.num_fds() for process in processes]
        for _ in range(2):
            result = sandbox.execute([{"kind": "stdin", "code": code, "inputs": [""] * 3}], Limits())
            assert result.stdout == b"[] 1000\n" * 3
            assert len(result.reports) == 3
        reads = {"kind": "stdin", "code": "import sys; print(sys.stdin.read())", "inputs": ["longer", "short"]}
        assert sandbox.execute([reads], Limits()).stdout == b"longer\nshort\n"
        imports = "import json.tool\ndef f(x): return x"
        calls = {"kind": "calls", "code": imports, "function": "f", "inputs": [[1]] * 3}
        assert sandbox.execute([calls], Limits()).reports == (b"1",) * 3
        for _ in range(2):
            assert sandbox.run(code).stdout == b"[] 1000\n"
            assert grade(sandbox, "def f(x): return x", SUITE).verdict == "passed"
        assert family(sandbox) == processes
        assert [process.num_fds() for process in processes] == files
