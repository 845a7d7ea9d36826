"""The worker process: takes a job in JSON, answers in JSON, and never outlives its parent.

Nothing here is imported by the trainer's process. `client.py` starts it with a bare interpreter, so that it holds
neither torch nor CUDA, and a computation that hangs, exhausts memory or crashes takes down this process only.
"""

import json
import os
import resource
import signal
from multiprocessing.connection import Connection


MEMORY_LIMIT = 1 << 30  # bytes of address space; a worker at work takes about 70 MB
PARENT_CHECK_SECONDS = 2.0
GRACE_SECONDS = 1.0


def read_job(pipe: Connection, parent_pid: int) -> list | None:
    """
    The next job, or None when the parent has gone.

    Normally the pipe ends then. But a process that the parent forked may hold the other end of the pipe open, so the
    parent's id is checked as well.
    """
    while not pipe.poll(PARENT_CHECK_SECONDS):
        if os.getppid() != parent_pid:
            return None
    try:
        return json.loads(pipe.recv_bytes())
    except (EOFError, ConnectionError):
        return None


def main(descriptor: int, parent_pid: int) -> None:
    """Serve jobs from a pipe until the parent goes away."""
    # A huge allocation raises MemoryError here, and never wakes the OOM killer.
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, hard))
    from .comparison import judge

    pipe = Connection(descriptor)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a traceback of the import above was seen
    # The kernel carries out the default action of SIGALRM: it ends this process even inside a C function that never
    # returns to the interpreter. The parent kills earlier; this is for a parent that was killed itself.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    verdict = "ready"
    while True:
        pipe.send_bytes(json.dumps(verdict).encode())
        if (job := read_job(pipe, parent_pid)) is None:
            return
        gold, answer, seconds = job
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_SECONDS)
        try:
            verdict = judge(gold, answer)
        except MemoryError:
            verdict = "memory"
        except Exception as error:  # sympy may raise anything on nonsense; counted as a failed check
            verdict = f"error: {type(error).__name__}"
        signal.setitimer(signal.ITIMER_REAL, 0)
