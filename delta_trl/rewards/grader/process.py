"""The worker process: reads one JSON job per line, answers with one JSON line, and never outlives its parent.

Nothing here is imported by the trainer's process. `checks.py` starts it with a bare interpreter, so that it holds
neither torch nor CUDA, and a computation that hangs, exhausts memory or crashes takes down this process only.
"""

import io
import json
import os
import resource
import select
import signal


PARENT_CHECK_SECONDS = 2.0
GRACE_SECONDS = 1.0


def read_job(stream: io.FileIO, parent_pid: int) -> dict | None:
    """
    The next job, or None when the parent has gone.

    Normally the input ends then. But a process that the parent forked may hold the other end of the pipe open, so the
    parent's id is checked as well.
    """
    readable = select.poll()
    readable.register(stream, select.POLLIN)
    while not readable.poll(1000 * PARENT_CHECK_SECONDS):
        if os.getppid() != parent_pid:
            return None
    line = stream.readline()
    return json.loads(line) if line else None


def main(parent_pid: int, memory_limit: int) -> None:
    """Serve jobs until the parent goes away. The protocol has its own descriptor: a stray print cannot corrupt it."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = memory_limit if hard == resource.RLIM_INFINITY else min(memory_limit, hard)
    # A huge allocation raises MemoryError here, and never wakes the OOM killer.
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    from .equivalence import judge

    replies = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    # Unbuffered, so that poll() and readline() agree on what is left to read.
    jobs = os.fdopen(os.dup(0), "rb", buffering=0)
    # The kernel carries out the default action of SIGALRM: it ends this process even inside a C function that never
    # returns to the interpreter. The parent kills earlier; this is for a parent that was killed itself.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    verdict = "ready"
    while True:
        replies.write(json.dumps(verdict) + "\n")
        if verdict == "memory" or (job := read_job(jobs, parent_pid)) is None:  # out of memory: not used again
            return
        signal.setitimer(signal.ITIMER_REAL, job["timeout"] + GRACE_SECONDS)
        try:
            verdict = judge(job["gold"], job["answer"])
        except MemoryError:
            verdict = "memory"
        except Exception as error:  # sympy may raise anything on nonsense; counted as a failed check
            verdict = f"error: {type(error).__name__}"
        signal.setitimer(signal.ITIMER_REAL, 0)
