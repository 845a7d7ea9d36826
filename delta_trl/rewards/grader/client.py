"""The client of worker processes that check answers, each within its time limit."""

import functools
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil

from ...sandbox.pool import WorkerError, WorkerPool


logger = logging.getLogger(__name__)

START_SECONDS = 60.0
MAX_ATTEMPTS = 3
MAX_FAILED_STARTS = 3
NOT_CHECKED = "not checked"
STARVED = "too little processor time"
FAILED = ("timeout", "crash", "memory", "error", STARVED)
Pair = tuple[str, str | None]  # a gold and an answer
GOLD_ALONE = "0.5"  # an easy answer, after a failure: is it the gold's?
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)  # such as from the kernel's OOM killer

# gmpy2 aborts the process when it runs out of memory; Python's own integers raise MemoryError.
WORKER_ENVIRONMENT = {"SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1", "PYTHONHASHSEED": "0"}
BOOTSTRAP = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from delta_trl.rewards.grader.process import main
main(*map(int, sys.argv[2:]))
"""


class GraderProcess:
    """
    One worker process behind a pipe (see `process.py`).

    Raises:
        WorkerError, OSError: If it does not start; standard error may have a traceback. Another attempt may succeed.
    """

    def __init__(self):
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])
        self.pipe, end = multiprocessing.Pipe()
        with end:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-W", "ignore", "-c", BOOTSTRAP, path, str(end.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[end.fileno()],
                env=os.environ | WORKER_ENVIRONMENT,
                start_new_session=True,  # the trainer alone handles Ctrl-C in the terminal
            )
        self.reusable = True
        try:
            if self._receive(START_SECONDS) is None:
                raise WorkerError(f"A reward worker was not ready within {START_SECONDS:.0f} s.")
        except (EOFError, ConnectionError):
            raise WorkerError(f"A reward worker ended with status {self.kill()} before it was ready.") from None
        except BaseException:
            self.kill()
            raise

    def _receive(self, seconds: float) -> str | None:
        """The next reply; `None` if none comes in that time. Raises EOFError or OSError if the process has ended."""
        return json.loads(self.pipe.recv_bytes()) if self.pipe.poll(seconds) else None

    def check(self, gold: str, answer: str | None, seconds: float) -> str:
        """
        The verdict on an answer (see `judge`), `"timeout"` if the check used up its time, `STARVED` if it got too
        little processor time, or `"crash"`.

        Raises:
            WorkerError: If the process was killed.
        """
        self.reusable = False
        before = self.cpu_seconds()
        try:
            # never blocks: the job fits the empty pipe
            self.pipe.send_bytes(json.dumps([gold, answer, seconds]).encode())
            verdict = self._receive(seconds)
        except (EOFError, ConnectionError):
            if self.process.wait() in FROM_OUTSIDE:
                raise WorkerError("A reward worker was killed.") from None
            return "crash"
        if verdict is None:
            return "timeout" if self.cpu_seconds() - before > seconds / 4 else STARVED
        self.reusable = verdict != "memory"  # the process ends itself
        return verdict

    def cpu_seconds(self) -> float:
        """Processor time so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def kill(self) -> int:
        """End the process, reap it, close the pipe; return its exit status (a negative signal number if killed)."""
        self.process.kill()
        self.pipe.close()
        return self.process.wait()


@functools.cache
def get_pool(size: int) -> WorkerPool[GraderProcess]:
    """This process's pool of that size."""
    return WorkerPool(size, GraderProcess)


def check_answers(pool: WorkerPool[GraderProcess], pairs: list[Pair], seconds: float) -> list[str]:
    """
    The verdicts on pairs of a gold and an answer: those of `GraderProcess.check`, or

    - `"unusable gold"` instead of a timeout or another failure, if the gold alone fails, too;
    - `"not checked"`: workers could not start or were killed, or even the gold alone got too little processor time.
      Says nothing about the answer.

    Args:
        pool (`WorkerPool[GraderProcess]`): From `get_pool`.
        pairs (`list[Pair]`): Golds and answers.
        seconds (`float`): Time limit of each check.
    """
    failed_starts: list[Exception] = []

    def check(pair: Pair) -> str:
        verdict = attempt(pair)
        if not verdict.startswith(FAILED):
            return verdict
        alone = attempt((pair[0], GOLD_ALONE))
        if alone in (NOT_CHECKED, STARVED):
            return NOT_CHECKED
        if alone.startswith(FAILED):
            return "unusable gold"
        return "timeout" if verdict == STARVED else verdict  # the gold passes under the same load

    def attempt(pair: Pair) -> str:
        verdict = NOT_CHECKED
        for _ in range(MAX_ATTEMPTS):
            if len(failed_starts) >= MAX_FAILED_STARTS:
                break
            worker = None
            try:
                with pool.borrow() as worker:
                    verdict = worker.check(*pair, seconds)
                if verdict != STARVED:
                    return verdict
            except (WorkerError, OSError, psutil.Error) as error:
                logger.warning("A reward worker failed: %s", error)
                if worker is None:
                    failed_starts.append(error)
        return verdict

    different = set(pairs)  # many completions of a prompt have one answer
    with ThreadPoolExecutor(pool.size) as threads:
        verdicts = dict(zip(different, threads.map(check, different), strict=True))
    return [verdicts[pair] for pair in pairs]
