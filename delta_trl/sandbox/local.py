"""Runs untrusted programs on a pool of jailed workers."""

import logging
import os
import platform
from typing import Literal

from .limits import Limits, Result
from .pool import WorkerError, WorkerPool
from .retries import retried
from .worker import TierError, Worker


logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.1  # a shortage of memory or processes may pass
# A program whose attempts must all fail in a jail. It runs once when a tier is chosen: a kernel may accept rules
# without applying them.
SELF_CHECK = """\
import os, socket
for attempt in (os.fork, socket.socket, lambda: open("/etc/passwd"), lambda: open("/escaped", "w")):
    try:
        attempt()
    except OSError:
        continue
    os._exit(1)
print("jailed")
"""
ADVICE = (
    "Allow the Landlock and seccomp system calls (Linux 5.13 or newer; see docs/sandbox.md), or run programs on a "
    "server: `remote_url`."
)
TIERS = {"A": "namespaces, Landlock and seccomp", "B": "Landlock and seccomp"}


class SandboxUnavailableError(RuntimeError):
    """Programs cannot be isolated on this machine."""


class Sandbox:
    """
    Runs untrusted programs, each in its own process inside a jail.

    Workers start on first use. Any thread may call any method. A forked process gets workers of its own.

    Args:
        limits (`Limits`, *optional*): What each execution may use.
        workers (`int`, *optional*):
            How many run at the same time; by default one per processor that this process may use, divided by
            `LOCAL_WORLD_SIZE` where a launcher such as accelerate has set it.
        tier (`str`, *optional*): "A" or "B" to require one; by default the best one that works here.

    Raises:
        SandboxUnavailableError: At first use, if no tier can be set up here.
    """

    is_local: Literal[True] = True

    def __init__(self, limits: Limits | None = None, *, workers: int | None = None, tier: str | None = None):
        if tier not in (None, *TIERS):
            raise ValueError(f"A sandbox's tier is 'A' or 'B', got {tier!r}.")
        self.limits = limits or Limits()
        self.workers = workers or default_workers()
        self.tier: str | None = None  # chosen when the first worker starts
        self._wanted_tier = tier
        self._pool = WorkerPool(self.workers, self._start)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all idle workers, and so all workers once running calls are done. Further use starts new ones."""
        self._pool.close()

    def run(self, code: str, stdin: str = "", limits: Limits | None = None) -> Result:
        """
        Run a program, as `python program.py < input` would.

        Args:
            code (`str`): The program's text.
            stdin (`str`, *optional*, defaults to `""`): What it reads from standard input.
            limits (`Limits`, *optional*): Instead of the sandbox's.
        """
        return self.execute([stdin_job(code, stdin)], limits or self.limits)

    def execute(self, jobs: list[dict], limits: Limits) -> Result:
        """
        Execute a job, or a pair of jobs that are linked by a socket; the result is the first one's.

        An attempt without a result, such as one whose worker is lost, is repeated, see `retried`.
        """
        if lowered := limits.lowered():
            raise SandboxUnavailableError(f"{lowered}. Raise it with `ulimit`, or promise less in `Limits`.")

        def run() -> Result:
            with self._pool.borrow() as worker:
                return worker.execute(jobs, limits)

        return retried(run, (WorkerError, OSError), RETRY_SECONDS, "Sandbox execution")

    def _start(self) -> Worker:
        with self._pool.lock:
            return Worker(self.tier) if self.tier else self._choose_tier()

    def _choose_tier(self) -> Worker:
        """Start a worker of the best tier that works here."""
        system = platform.system()
        machine = platform.machine()
        if system != "Linux" or machine not in ("x86_64", "aarch64"):
            raise SandboxUnavailableError(f"The sandbox needs Linux on x86-64 or aarch64, got {system} on {machine}.")
        problems = []
        for tier in [self._wanted_tier] if self._wanted_tier else TIERS:
            described = f"tier {tier} ({TIERS[tier]})"
            try:
                worker = Worker(tier)
            except TierError as error:
                problems.append(f"not {described}: {error}")
                continue
            if worker.execute([stdin_job(SELF_CHECK)], Limits()).stdout != b"jailed\n":
                worker.kill()
                problems.append(f"not {described}: set up, but a test program was not confined")
                continue
            self.tier = tier
            log = logger.warning if problems else logger.info  # a weaker tier is always reported
            log("Sandbox: %s", "; ".join([f"{described}, {self.workers} workers", *problems]))
            return worker
        raise SandboxUnavailableError(f"Programs cannot be isolated on this machine: {'; '.join(problems)}. {ADVICE}")


def default_workers() -> int:
    """The processors of this process, divided among the processes that a launcher has started."""
    has_affinity = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    processes = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return max(1, processors // processes)


def stdin_job(code: str, stdin: str = "") -> dict:
    return {"kind": "stdin", "code": code, "inputs": [stdin]}
