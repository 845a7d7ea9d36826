"""Runs untrusted programs on a pool of jailed workers."""

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Iterable, Sequence
from typing import Literal

from .limits import Limits, Outcome, Result
from .pool import WorkerError, WorkerPool, map_in_threads
from .worker import TierError, Worker, supported_platform


logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
RETRY_SECONDS = 0.1  # doubled after each attempt: a shortage of memory or processes may pass
GRACE_SECONDS = 10.0  # a worker ends an execution by itself; one that has not answered by then is stuck
STDERR_BYTES = 4096  # of standard error, the end is kept
DEFAULT_PACKAGES = ("numpy", "sortedcontainers")
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
TIERS = {"A": "namespaces, Landlock and seccomp", "B": "Landlock and seccomp", "unsafe": "NO isolation"}


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
        packages (`Sequence[str]`, *optional*, defaults to `("numpy", "sortedcontainers")`):
            Packages besides the standard library that programs may import, where they are installed.
        allow_unsafe (`bool`, *optional*, defaults to `False`):
            Run without any isolation where no tier can be set up. Programs then have all rights of the caller.

    Raises:
        SandboxUnavailableError: At first use, if no tier can be set up here.
    """

    is_local: Literal[True] = True

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        workers: int | None = None,
        tier: str | None = None,
        packages: Sequence[str] = DEFAULT_PACKAGES,
        allow_unsafe: bool = False,
    ):
        if tier not in (None, *TIERS):
            raise ValueError(f"A sandbox's tier is 'A' or 'B', got {tier!r}.")
        if tier == "unsafe" and not allow_unsafe:
            raise ValueError("To run programs without isolation, set allow_unsafe=True as well.")
        if workers is not None and workers < 1:
            raise ValueError(f"A sandbox needs at least one worker, got {workers}.")
        self.limits = limits or Limits()
        self.workers = workers or default_workers()
        self.packages = tuple(packages)
        self.allow_unsafe = allow_unsafe
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
        limits = limits or self.limits
        return self.execute([{"kind": "stdin", "code": code, "inputs": [stdin]}], limits)

    def run_many(self, programs: Iterable[tuple[str, str]], limits: Limits | None = None) -> list[Result]:
        """Run pairs of a program and its input on all workers; the results come in the same order."""
        return map_in_threads(lambda program: self.run(program[0], program[1], limits), programs, self.workers)

    def execute(self, jobs: list[dict], limits: Limits) -> Result:
        """
        Execute a job, or a pair of jobs that are linked by a socket; the result is the first one's.

        If a worker is lost, the job is tried again on a new one. If all attempts fail but another program ran right
        before the last, the job itself kills workers (`Outcome.KILLED`); otherwise the sandbox fails
        (`Outcome.SANDBOX_ERROR`).
        """
        if lowered := limits.lowered():
            raise SandboxUnavailableError(f"{lowered}. Raise it with `ulimit`, or promise less in `Limits`.")
        works = False
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                time.sleep(RETRY_SECONDS * 2 ** (attempt - 1))
            if attempt == MAX_ATTEMPTS - 1:  # not after it: a shortage that ends then would be blamed on the program
                works = self._works()
            try:
                result = self._attempt(jobs, limits)
                if result is not None:
                    return result
                problem = "its process could not begin, or was killed"
            except WorkerError as error:
                problem = str(error)
            except OSError as error:  # of this process, as when it writes the inputs
                problem, works = str(error), False
            logger.warning("Sandbox execution failed (attempt %d of %d): %s", attempt + 1, MAX_ATTEMPTS, problem)
        if works:
            return Result(Outcome.KILLED)
        return Result(Outcome.SANDBOX_ERROR, stderr=problem.encode())

    def _works(self) -> bool:
        try:
            job = {"kind": "stdin", "code": "print('works')", "inputs": [""]}
            result = self._attempt([job], Limits())
        except (WorkerError, OSError):
            return False
        return result is not None and result.stdout == b"works\n"

    def _attempt(self, jobs: list[dict], limits: Limits) -> Result | None:
        """One attempt; `None` if it has no result."""
        with self._pool.borrow() as worker:
            return execute_on(worker, jobs, limits)

    def _start(self) -> Worker:
        with self._pool.lock:
            if self.tier is None:
                return self._choose_tier()
        return Worker(self.tier, self.packages)

    def _choose_tier(self) -> Worker:
        """Start a worker of the best tier that works here."""
        problems = []
        unsupported = supported_platform()
        if unsupported and not (self.allow_unsafe and hasattr(os, "memfd_create")):  # workers need Linux all the same
            raise SandboxUnavailableError(f"Programs cannot be isolated: {unsupported}. {ADVICE}")
        tiers = [self._wanted_tier] if self._wanted_tier else ["A", "B"] + ["unsafe"] * self.allow_unsafe
        for tier in ["unsafe"] if unsupported else tiers:
            try:
                worker = Worker(tier, self.packages)
            except TierError as error:
                problems.append(f"tier {tier} ({TIERS[tier]}): {error}")
                continue
            if tier != "unsafe" and not is_jailed(worker):
                worker.kill()
                problems.append(f"tier {tier} ({TIERS[tier]}): set up, but a test program was not confined")
                continue
            self.tier = tier
            log = logger.warning if problems or tier == "unsafe" else logger.info  # a weaker tier is always reported
            log(
                "Sandbox: tier %s (%s), %d workers%s",
                tier,
                TIERS[tier],
                self.workers,
                "".join(f"; not {problem}" for problem in problems),
            )
            return worker
        raise SandboxUnavailableError(f"Programs cannot be isolated on this machine: {'; '.join(problems)}. {ADVICE}")


ADVICE = (
    "Allow the Landlock and seccomp system calls (Linux 5.13 or newer; see docs/sandbox.md), use a remote executor, "
    "or pass allow_unsafe=True to run model-written programs with all rights of this process."
)


def default_workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE") or 1))


def open_memory(data: bytes = b"") -> int:
    """An anonymous file in memory: no path, no pipe that could fill up, gone with its last descriptor."""
    descriptor = os.memfd_create("delta_trl")
    while data:
        data = data[os.write(descriptor, data) :]
    return descriptor


def read_all(descriptor: int, limit: int) -> bytes:
    parts, position = [], 0
    while position < limit and (part := os.pread(descriptor, min(1 << 20, limit - position), position)):
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def is_jailed(worker: Worker) -> bool:
    result = execute_on(worker, [{"kind": "stdin", "code": SELF_CHECK, "inputs": [""]}], Limits())
    return result is not None and result.stdout == b"jailed\n"


def execute_on(worker: Worker, jobs: list[dict], limits: Limits) -> Result | None:
    """The result of the first job's process; `None` if a process failed before its program began, or it was killed."""
    with contextlib.ExitStack() as stack:
        files = []  # of each process: job, stdout, stderr, reports
        for job in jobs:
            files += [open_memory(json.dumps(job).encode()), *[open_memory() for _ in range(3)]]
        for descriptor in files:
            stack.callback(os.close, descriptor)
        request = {"limits": limits.as_request(), "wall_seconds": limits.wall_seconds, "processes": len(jobs)}
        reply = worker.execute(request, files, limits.wall_seconds * 2 + GRACE_SECONDS)
        return read_result(reply, files[:4], limits, len(jobs[0].get("inputs", [""]))) if reply["begun"] else None


def read_result(reply: dict, group: list[int], limits: Limits, cases: int) -> Result | None:
    """
    The result of a process from its files and the worker's reply, with at most one report for each case; `None` if the
    process was killed from outside.
    """
    process = reply["processes"][0]
    cpu_seconds = max(one["cpu_seconds"] for one in reply["processes"])
    over_time = reply["timed_out"] or cpu_seconds >= limits.as_request()["cpu_seconds"]
    sizes = [os.fstat(descriptor).st_size for descriptor in group[1:]]
    stderr = os.pread(group[2], STDERR_BYTES, max(0, sizes[1] - STDERR_BYTES))
    status = os.waitstatus_to_exitcode(process["status"])
    if any(one["status"] == signal.SIGKILL and not one["by_zygote"] for one in reply["processes"]) and not over_time:
        return None  # by a kernel short of memory: a program cannot send one to itself
    last_line = stderr.rstrip().rpartition(b"\n")[2]
    if over_time:
        outcome = Outcome.TIMEOUT
    elif status == 0 and max(sizes) <= limits.output_bytes:
        outcome = Outcome.OK
    elif max(sizes) >= limits.output_bytes:
        outcome = Outcome.OUTPUT_LIMIT
    elif last_line.startswith(b"MemoryError"):
        outcome = Outcome.MEMORY
    else:
        outcome = Outcome.EXCEPTION if status > 0 else Outcome.KILLED
    *reports, _ = read_all(group[3], limits.output_bytes).split(b"\n", cases)
    return Result(
        outcome=outcome,
        stdout=read_all(group[1], limits.output_bytes),
        stderr=stderr,
        exit_status=status,
        wall_seconds=reply["wall_seconds"],
        cpu_seconds=process["cpu_seconds"],
        reports=tuple(reports),
    )
