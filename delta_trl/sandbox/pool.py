"""
A pool of worker processes, for the sandbox and for the grader of answers. A thread borrows a worker for one task, and
may kill it.

Why not a library: a worker may hold the GIL for ever, so it must be killed from outside. concurrent.futures cannot
free one stuck worker, and spawn and forkserver run the user's script again. Here a worker is a bare interpreter that
`subprocess` starts. That runs no Python in a fork of a process with CUDA, and works in any thread.
"""

import atexit
import contextlib
import os
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class WorkerError(RuntimeError):
    """A worker could not be started, or did not answer. Says nothing about the graded program or answer."""


class PoolWorker(Protocol):
    """One worker process. `reusable`: whether the pool may lend it again."""

    process: subprocess.Popen
    reusable: bool

    def kill(self) -> object:
        """End the process and reap it."""


W = TypeVar("W", bound=PoolWorker)


class WorkerPool(Generic[W]):
    """
    Lends workers, each to one thread at a time.

    Workers start on first use and end with this process. A process that was forked from this one has its own.

    Args:
        size (`int`): How many workers there may be.
        start (`Callable[[], PoolWorker]`): Starts a worker.
    """

    def __init__(self, size: int, start: Callable[[], W]):
        if size < 1:
            raise ValueError(f"A pool needs at least one worker, got {size}.")
        self.size = size
        self.start = start
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Forget everything that belongs to a process: at the start, and in a forked child."""
        self.workers: list[W] = []
        self.idle: list[W] = []
        self.lock = threading.Lock()
        self.slots = threading.BoundedSemaphore(self.size)

    @contextlib.contextmanager
    def borrow(self) -> Iterator[W]:
        """An idle worker, or a new one. It comes back unless something went wrong with it."""
        with self.slots:
            worker = self._take()
            reusable = False
            try:
                yield worker
                reusable = worker.reusable
            finally:
                if reusable:
                    self.idle.append(worker)
                else:
                    self._discard(worker)

    def _take(self) -> W:
        with self.lock:
            while self.idle:
                worker = self.idle.pop()
                if worker.process.poll() is None:
                    return worker
                self._discard(worker)
        worker = self.start()
        self.workers.append(worker)
        return worker

    def _discard(self, worker: W) -> None:
        self.workers.remove(worker)
        worker.kill()

    def close(self) -> None:
        """End all idle workers, and so all workers once running calls are done. Further use starts new ones."""
        with self.lock:
            while self.idle:
                self._discard(self.idle.pop())


_pools: "weakref.WeakSet[WorkerPool]" = weakref.WeakSet()


@atexit.register
def kill_workers() -> None:
    """End the workers of this process, also those at work."""
    # No lock is taken: a daemon thread may hold it for the rest of its batch, and must not delay the exit.
    for pool in list(_pools):
        for worker in list(pool.workers):
            worker.process.kill()
            worker.process.wait()


def _forget_workers() -> None:
    # A forked child must neither use nor end its parent's workers. It has one thread now, so no lock is in use.
    for pool in list(_pools):
        pool.reset()


os.register_at_fork(after_in_child=_forget_workers)
