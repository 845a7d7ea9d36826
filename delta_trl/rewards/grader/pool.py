"""Worker processes with a deadline per job.

Why not a library: a check may hold the GIL for ever, so a worker must be killed from outside; concurrent.futures
cannot free one stuck worker, and spawn and forkserver re-run the user's script. Here a worker is a bare interpreter
behind two pipes (see `process.py`), started on first use. `subprocess` neither forks after CUDA was initialised (it
executes at once) nor needs the main thread or its signals.
"""

import atexit
import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field

import psutil


logger = logging.getLogger(__name__)

MEMORY_LIMIT = 1 << 30  # bytes of address space; a worker at work takes about 70 MB
START_SECONDS = 60.0
MAX_ATTEMPTS = 3
MAX_FAILED_STARTS = 3
CPU_CLOCK = 2  # the clock of all threads, in Linux's numbers for clocks of processes

# gmpy2 aborts the process when it runs out of memory; Python's own integers raise MemoryError.
WORKER_ENVIRONMENT = {"SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1", "PYTHONHASHSEED": "0"}
BOOTSTRAP = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from delta_trl.rewards.grader.process import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""


@dataclass
class Job:
    """One comparison. `verdict` is filled in by `GraderPool.run`."""

    gold: str
    answers: tuple[str, ...]
    timeout: float
    verdict: str | None = None
    attempts: int = field(default=0, repr=False)


class GraderProcess:
    """One worker process and its two pipes. It is idle, or works on `job` until `deadline`."""

    def __init__(self):
        arguments = [json.dumps([os.path.abspath(entry) for entry in sys.path]), str(os.getpid()), str(MEMORY_LIMIT)]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-W", "ignore", "-c", BOOTSTRAP, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=os.environ | WORKER_ENVIRONMENT,
            start_new_session=True,  # a Ctrl-C in the terminal is the trainer's to handle
        )
        assert self.process.stdin is not None  # both are pipes, see above
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.output = self.stdout.fileno()
        self.ready = False
        self.job: Job | None = None
        self.deadline = time.monotonic() + START_SECONDS
        self.buffer = b""

    def send(self, job: Job) -> None:
        """Give an idle worker its job. An idle worker's pipe is empty, and a job fits into it: this never blocks."""
        self.job = job
        job.attempts += 1
        self.cpu_at_start = self.cpu_seconds()
        self.deadline = time.monotonic() + job.timeout
        message = {"gold": job.gold, "answers": job.answers, "timeout": job.timeout}
        with contextlib.suppress(BrokenPipeError):  # a dead worker is noticed when its output ends
            self.stdin.write(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict] | None:
        """Complete replies that have arrived; None when the worker has ended."""
        data = os.read(self.output, 65536)
        if not data:
            return None
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def cpu_seconds(self) -> float:
        """Processor time so far, from the process's own clock: Linux may be without /proc, other systems are."""
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


class GraderPool:
    """Runs batches of jobs on a fixed number of workers. Any thread may call `run`; batches take turns."""

    def __init__(self, size: int):
        if size < 1:
            raise ValueError(f"A pool needs at least one worker, got {size}.")
        self.size = size
        self.workers: list[GraderProcess] = []
        self.lock = threading.Lock()

    def run(self, jobs: list[Job]) -> None:
        """
        Fill in each job's verdict: the worker's, or

        - `"timeout"`: the check used up its deadline;
        - `"crash"`: the check brought down every worker it was given to;
        - `None`: no worker could be had, or the machine kept them from working. Not the answer's fault.
        """
        with self.lock:
            self._run(jobs)

    def _run(self, jobs: list[Job]) -> None:
        queue = deque(jobs)
        failed_starts = 0
        with selectors.DefaultSelector() as selector:
            for worker in list(self.workers):
                if worker.process.poll() is None:
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                else:
                    self._discard(worker)
            try:
                while (queue or any(worker.job for worker in self.workers)) and failed_starts < MAX_FAILED_STARTS:
                    busy = sum(worker.job is not None for worker in self.workers)
                    while len(self.workers) < min(self.size, busy + len(queue)):
                        try:
                            worker = GraderProcess()
                        except OSError as error:  # no memory or no process to be had, for now
                            logger.warning("A reward worker cannot be started: %s", error)
                            failed_starts += 1
                            break
                        self.workers.append(worker)
                        selector.register(worker.output, selectors.EVENT_READ, worker)
                    for worker in self.workers:
                        if queue and worker.ready and worker.job is None:
                            worker.send(queue.popleft())

                    waiting_for = [w.deadline for w in self.workers if w.job is not None or not w.ready]
                    events = selector.select(max(0.0, min(waiting_for, default=0.0) - time.monotonic()))
                    for key, _ in events:
                        failed_starts += self._handle_output(key.data, queue, selector)
                    for worker in list(self.workers):
                        if (worker.job is not None or not worker.ready) and time.monotonic() >= worker.deadline:
                            failed_starts += self._handle_deadline(worker, queue, selector)
            finally:
                # An exception (Ctrl-C, say) must not leave a worker with an answer for the next batch to misread.
                for worker in list(self.workers):
                    if worker.job is not None:
                        self._discard(worker)

    def _handle_output(self, worker: GraderProcess, queue: deque[Job], selector: selectors.BaseSelector) -> int:
        """Take a worker's replies, or notice its end. Returns 1 if it ended before it could work."""
        replies = worker.receive()
        if replies is not None:
            for reply in replies:
                if "ready" in reply:
                    worker.ready = True
                elif "fatal" in reply:
                    raise RuntimeError(f"A reward worker cannot start:\n{reply['fatal']}")
                else:
                    assert worker.job is not None  # workers speak when they are spoken to
                    worker.job.verdict = reply["verdict"]
                    worker.job = None
            return 0
        selector.unregister(worker.output)
        job, was_ready = worker.job, worker.ready
        status = self._discard(worker)
        if job is not None:
            if job.attempts < MAX_ATTEMPTS:
                queue.appendleft(job)
            elif status not in (-signal.SIGKILL, -signal.SIGTERM):  # these come from outside, as from the OOM killer
                job.verdict = "crash"
        return int(not was_ready)

    def _handle_deadline(self, worker: GraderProcess, queue: deque[Job], selector: selectors.BaseSelector) -> int:
        """Kill a worker that is past its deadline. Returns 1 if it was still starting."""
        selector.unregister(worker.output)
        job = worker.job
        used = worker.cpu_seconds() - worker.cpu_at_start if job is not None else 0.0
        self._discard(worker)
        if job is None:
            return 1
        if used > job.timeout / 4:
            job.verdict = "timeout"
        elif job.attempts < MAX_ATTEMPTS:  # the machine stood still, not the check
            queue.append(job)
        return 0

    def _discard(self, worker: GraderProcess) -> int:
        self.workers.remove(worker)
        return worker.kill()

    def close(self) -> None:
        """End all workers. The pool can be used again: it starts new ones."""
        with self.lock:
            for worker in list(self.workers):
                self._discard(worker)


_pools: dict[int, GraderPool] = {}
_pools_lock = threading.Lock()


def get_pool(size: int) -> GraderPool:
    """This process's pool of that size. Workers start on first use and end with the process."""
    with _pools_lock:
        return _pools.setdefault(size, GraderPool(size))


def _kill_workers() -> None:
    # No lock is taken: a daemon thread may hold it for the rest of its batch, and must not hold up the exit.
    for pool in _pools.values():
        for worker in list(pool.workers):
            worker.process.kill()
            worker.process.wait()


def _forget_pools() -> None:
    # A forked child shares the pipes of its parent's workers: it must neither use nor close them.
    global _pools, _pools_lock
    _pools, _pools_lock = {}, threading.Lock()


atexit.register(_kill_workers)
os.register_at_fork(after_in_child=_forget_pools)
