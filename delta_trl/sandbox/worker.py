"""The host's end of one worker process: starts it, and has it execute one request at a time."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig

from .limits import OUTPUT_BYTES, PACKAGES, Limits, Outcome, Result
from .pool import WorkerError


START_SECONDS = 30.0
GRACE_SECONDS = 10.0  # a worker ends an execution by itself; one that has not answered by then is stuck
STDERR_BYTES = 4096  # of standard error, the end is kept
SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
# The whole environment of a worker and its programs; nothing comes from the trainer's.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the order of sets is the same in every run
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    # one arena and one thread: more would count against the limit of the address space
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
LIBRARY_PATH = "LD_LIBRARY_PATH"  # the interpreter may not start without it; programs do not see it
# Defines the package `sandbox` without running its `__init__.py`, which is the host's side, or that of `delta_trl`.
BOOTSTRAP = """\
import json, sys, types
package, settings = sys.argv[1:]
sys.modules["sandbox"] = types.ModuleType("sandbox")
sys.modules["sandbox"].__path__ = [package]
from sandbox.jail.zygote import main
sys.argv[:] = [""]
main(**json.loads(settings))
"""


class TierError(WorkerError):
    """The tier cannot be set up here."""


def package_directories() -> list[str]:
    """The directories that may hold `PACKAGES`, beside much that programs must not import."""
    return sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def readable_paths() -> list[str]:
    """The files and directories that the interpreter and its imports read: they exist, and are absolute."""
    paths = [
        *os.environ.get(LIBRARY_PATH, "").split(":"),
        *SYSTEM_LIBRARIES,
        os.path.join(sys.base_prefix, "lib"),
        os.path.dirname(os.__file__),
    ]
    for site in package_directories():
        for name in PACKAGES:
            package = os.path.join(site, name)
            paths += [package, f"{package}.libs"]
    existing = filter(os.path.exists, paths)
    return sorted(set(map(os.path.abspath, existing)))


class Worker:
    """
    A jailed interpreter that executes one request at a time.

    Args:
        tier (`str`): "A" or "B".

    Raises:
        TierError: If the tier cannot be set up; the message says which part failed.
        WorkerError: If the process did not start.
    """

    def __init__(self, tier: str):
        readable = readable_paths()
        in_tmp = any(f"{path}/".startswith("/tmp/") for path in readable)
        temporary = "/temporary" if in_tmp else "/tmp"  # it must not hide what is readable
        package = os.path.dirname(os.path.abspath(__file__))
        settings = {"tier": tier, "readable": readable, "sites": package_directories(), "temporary": temporary}
        places = {"HOME": temporary, "TMPDIR": temporary, LIBRARY_PATH: os.environ.get(LIBRARY_PATH, "")}
        self.reusable = True  # whether the pool may lend it again
        self.errors = open(open_memory(), "rb")  # what it writes to standard error
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-S", "-B", "-c", BOOTSTRAP, package, json.dumps(settings)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self.errors,
                env=ENVIRONMENT | places,
                cwd="/",
                start_new_session=True,  # the trainer alone handles Ctrl-C in the terminal
            )
        finally:
            theirs.close()
        try:
            self._receive(START_SECONDS)
        except BaseException:
            self.kill()
            raise

    def execute(self, jobs: list[dict], limits: Limits) -> Result:
        """
        Execute a job, or a pair of jobs that are linked by a socket (see `jail.zygote.execute`).

        Returns:
            `Result`: Of the first job's process.

        Raises:
            WorkerError: If a process could not begin, or was killed from outside, or the worker is lost.
            OSError: If this process cannot write the jobs, or the worker is gone.
        """
        request = {"limits": limits.of_kernel(), "wall_seconds": limits.wall_seconds}
        files: list[int] = []  # of each process: job, stdout, stderr, reports
        try:
            for job in jobs:
                for content in (json.dumps(job).encode(), b"", b"", b""):
                    files.append(open_memory(content))
            socket.send_fds(self.channel, [json.dumps(request).encode()], files)
            reply = self._receive(limits.wall_seconds * 2 + GRACE_SECONDS)
            self.reusable = reply["reusable"]
            cases = jobs[0].get("inputs", [""])
            return read_result(reply["ends"], files, limits, len(cases))
        finally:
            for descriptor in files:
                os.close(descriptor)

    def _receive(self, seconds: float) -> dict:
        poll = select.poll()  # `select` cannot have descriptors above 1,023
        poll.register(self.channel, select.POLLIN)
        if not poll.poll(seconds * 1000):
            raise WorkerError(f"A sandbox worker did not answer within {seconds:.1f} s.")
        try:
            message = self.channel.recv(65536)
        except ConnectionError:
            message = b""
        if not message:
            written = os.pread(self.errors.fileno(), STDERR_BYTES, 0).decode(errors="replace")
            raise WorkerError(f"A sandbox worker ended unexpectedly. {written}")
        reply = json.loads(message)
        if "fatal" in reply:
            raise TierError(reply["fatal"])
        return reply

    def kill(self) -> None:
        """End the worker and whatever it runs; reap it."""
        self.channel.close()
        self.errors.close()
        self.process.kill()
        self.process.wait()


def open_memory(data: bytes = b"") -> int:
    """An anonymous file in memory: no path, no pipe that could fill up, gone with its last descriptor."""
    descriptor = os.memfd_create("delta_trl")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    return descriptor


def size_of(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def read_result(ends: list, files: list[int], limits: Limits, cases: int) -> Result:
    """The result of the first process, from how each ended and its files; it has at most one report for each case."""
    codes = [code for code, _ in ends]
    status = codes[0]
    if status is None and any(map(size_of, files[::4])):  # a process empties its job when it begins
        raise WorkerError("A process of the sandbox had no time to begin.")
    over_time = status is None or any(seconds >= limits.cpu_seconds for _, seconds in ends)
    if -signal.SIGKILL in codes and not over_time:
        # by a kernel short of memory, or by itself before the program began: a program cannot send signals
        raise WorkerError("A process of the sandbox could not begin, or was killed from outside.")
    _, stdout, stderr, reports, *_ = files
    end_of_errors = os.pread(stderr, STDERR_BYTES, max(0, size_of(stderr) - STDERR_BYTES))
    last_line = end_of_errors.rstrip().rpartition(b"\n")[2]
    if over_time:
        outcome = Outcome.TIMEOUT
    elif max(map(size_of, (stdout, stderr, reports))) >= OUTPUT_BYTES:
        outcome = Outcome.OUTPUT_LIMIT
    elif status == 0:
        outcome = Outcome.OK
    elif last_line.startswith(b"MemoryError"):
        outcome = Outcome.MEMORY
    else:
        outcome = Outcome.EXCEPTION if status > 0 else Outcome.KILLED
    *lines, _ = os.pread(reports, OUTPUT_BYTES, 0).split(b"\n", cases)
    return Result(outcome, os.pread(stdout, OUTPUT_BYTES, 0), end_of_errors, tuple(lines))
