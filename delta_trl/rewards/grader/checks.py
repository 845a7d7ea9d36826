"""Checks answers in worker processes, each within its time limit."""

import contextlib
import functools
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time

import psutil

from ...sandbox.pool import WorkerError, WorkerPool, map_in_threads


logger = logging.getLogger(__name__)

MEMORY_LIMIT = 1 << 30  # bytes of address space; a worker at work takes about 70 MB
START_SECONDS = 60.0
MAX_ATTEMPTS = 3
MAX_FAILED_STARTS = 3
GOLD_ALONE = "0.5"  # an answer that takes no time, after a timeout: whether the gold takes it all
CPU_CLOCK = 2  # CPUCLOCK_SCHED in Linux's clock ids: processor time of all threads

# gmpy2 aborts the process when it runs out of memory; Python's own integers raise MemoryError.
WORKER_ENVIRONMENT = {"SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1", "PYTHONHASHSEED": "0"}
BOOTSTRAP = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from delta_trl.rewards.grader.process import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""


class GraderProcess:
    """
    One worker process behind two pipes (see `process.py`).

    Raises:
        WorkerError, OSError: If it does not start; another attempt may succeed.
        RuntimeError: If it can never start; the message has its traceback.
    """

    def __init__(self):
        arguments = [json.dumps([os.path.abspath(entry) for entry in sys.path]), str(os.getpid()), str(MEMORY_LIMIT)]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-W", "ignore", "-c", BOOTSTRAP, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=os.environ | WORKER_ENVIRONMENT,
            start_new_session=True,  # the trainer alone handles Ctrl-C in the terminal
        )
        assert self.process.stdin is not None  # both are pipes, see above
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.reusable = True
        try:
            reply = self._receive(START_SECONDS)
            if reply is None:
                raise WorkerError(f"A reward worker was not ready within {START_SECONDS:.0f} s.")
            if "fatal" in reply:
                raise RuntimeError(f"A reward worker cannot start:\n{reply['fatal']}")
        except EOFError:
            raise WorkerError(f"A reward worker ended with status {self.kill()} before it was ready.") from None
        except BaseException:
            self.kill()
            raise

    def _receive(self, seconds: float) -> dict | None:
        """The next reply; `None` if none comes in that time. Raises EOFError if the process has ended."""
        deadline = time.monotonic() + seconds
        readable, line = select.poll(), b""  # select() takes no descriptor of 1,024 and more
        readable.register(self.stdout, select.POLLIN)
        while not line.endswith(b"\n"):
            if not readable.poll(1000 * max(0.0, deadline - time.monotonic())):
                return None
            part = os.read(self.stdout.fileno(), 65536)
            if not part:
                raise EOFError
            line += part
        return json.loads(line)

    def check(self, gold: str, answer: str | None, seconds: float) -> str:
        """
        The verdict on an answer (see `judge`); `"timeout"` if the check used up its time.

        Raises:
            WorkerError: If the process got too little processor time.
            EOFError: If the process ended.
        """
        before = self.cpu_seconds()
        message = {"gold": gold, "answer": answer, "timeout": seconds}
        with contextlib.suppress(BrokenPipeError):  # the process has ended: `_receive` raises EOFError
            self.stdin.write(json.dumps(message).encode() + b"\n")  # never blocks: the message fits the empty pipe
        reply = self._receive(seconds)
        if reply is not None:
            self.reusable = reply["verdict"] != "memory"  # out of memory: the process ends itself
            return reply["verdict"]
        self.reusable = False
        if self.cpu_seconds() - before > seconds / 4:
            return "timeout"
        raise WorkerError(f"A reward worker got less than {seconds / 4:g} s of processor time in {seconds:g} s.")

    def cpu_seconds(self) -> float:
        """Processor time so far: from the Linux clock of the process, which needs no /proc, or from psutil."""
        try:
            return time.clock_gettime(~self.process.pid << 3 | CPU_CLOCK)
        except OSError:
            pass
        try:
            times = psutil.Process(self.process.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return times.user + times.system

    def kill(self) -> int:
        """End the process, reap it, close the pipes; return its exit status (a negative signal number if killed)."""
        self.process.kill()
        self.stdin.close()
        self.stdout.close()
        return self.process.wait()


@functools.cache
def get_pool(size: int) -> WorkerPool[GraderProcess]:
    """This process's pool of that size."""
    return WorkerPool(size, GraderProcess)


def check_answers(
    pool: WorkerPool[GraderProcess], pairs: list[tuple[str, str | None]], seconds: float
) -> list[str | None]:
    """
    The verdicts on pairs of a gold and an answer: the worker's verdict (see `judge`), or

    - `"timeout"`: the check used up its time; `"unusable gold"` if the gold alone uses it up, too;
    - `"crash"`: a worker crashed on it in the last attempt;
    - `None`: workers could not start, got too little processor time or were killed. Not the answer's fault.

    Args:
        pool (`WorkerPool[GraderProcess]`): From `get_pool`.
        pairs (`list[tuple[str, str | None]]`): Golds and answers.
        seconds (`float`): Time limit of each check.

    Raises:
        RuntimeError: If workers cannot start at all.
    """
    failed_starts: list[Exception] = []

    def check(pair: tuple[str, str | None]) -> str | None:
        verdict = attempt(pair)
        if verdict == "timeout" and attempt((pair[0], GOLD_ALONE)) in ("timeout", "unusable gold"):
            return "unusable gold"
        return verdict

    def attempt(pair: tuple[str, str | None]) -> str | None:
        crashed = False
        for _ in range(MAX_ATTEMPTS):
            if len(failed_starts) >= MAX_FAILED_STARTS:
                return None
            worker = None
            try:
                with pool.borrow() as worker:
                    return worker.check(*pair, seconds)
            except EOFError:
                # these signals come from outside, such as from the kernel's OOM killer
                crashed = worker is not None and worker.process.returncode not in (-signal.SIGKILL, -signal.SIGTERM)
            except (WorkerError, OSError) as error:
                crashed = False
                logger.warning("A reward worker failed: %s", error)
                if worker is None:
                    failed_starts.append(error)
        return "crash" if crashed else None

    return map_in_threads(check, pairs, pool.size)
