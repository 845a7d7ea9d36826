"""The limits of an execution, and its result."""

import enum
import math
import resource
from dataclasses import dataclass


OUTPUT_BYTES = 32 << 20  # of standard output, and as much of standard error and of returned values
THREADS = 64  # the main one included; other processes cannot be started at all
OPEN_FILES = 64  # the few of the harness included
WORKER_FILES = 128  # that a worker holds open for its programs
STACK_BYTES = 64 << 20
TEMPORARY_BYTES = 16 << 20  # of the directory that programs may write to
PACKAGES = ("numpy", "sortedcontainers")  # that programs may import besides the standard library, where installed


@dataclass(frozen=True)
class Limits:
    """
    Limits of one execution. Processor time of all its threads together is what one thread can use in `wall_seconds`.

    Args:
        wall_seconds (`float`, *optional*, defaults to `6.0`): Wall-clock time.
        memory_mb (`int`, *optional*, defaults to `1024`): Address space besides the interpreter's, in MiB.
    """

    wall_seconds: float = 6.0
    memory_mb: int = 1024

    def __post_init__(self):
        if not (self.wall_seconds > 0 and self.memory_mb > 0):
            raise ValueError(f"Limits need positive numbers, got {self}.")

    @property
    def cpu_seconds(self) -> int:
        return math.ceil(self.wall_seconds + 1)

    def of_kernel(self) -> dict[str, int]:
        """The limits that the kernel enforces, by their names in `resource`."""
        return {
            "RLIMIT_AS": self.memory_mb << 20,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_FSIZE": OUTPUT_BYTES,
            "RLIMIT_NOFILE": OPEN_FILES,
            "RLIMIT_NPROC": THREADS,
            "RLIMIT_STACK": STACK_BYTES,
            "RLIMIT_CORE": 0,
        }

    def lowered(self) -> str | None:
        """The first inherited hard limit that is lower than promised, in words; `None` if none is."""
        needed = self.of_kernel() | {"RLIMIT_NOFILE": WORKER_FILES}
        for name, value in needed.items():
            _, hard = resource.getrlimit(getattr(resource, name))
            if hard != resource.RLIM_INFINITY and hard < value:
                return f"{name} of this process is {hard}, and its workers need {value}"
        return None


class Outcome(enum.StrEnum):
    """How an execution ended. Only `SANDBOX_ERROR` is not the program's doing."""

    OK = "ok"
    EXCEPTION = "exception"  # an uncaught exception, or another exit status than 0
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output limit"
    KILLED = "killed"  # by a signal, such as a segmentation fault
    SANDBOX_ERROR = "sandbox error"


@dataclass(frozen=True)
class Result:
    """
    The result of an execution.

    Args:
        outcome (`Outcome`): How it ended.
        stdout (`bytes`, *optional*, defaults to `b""`): Standard output.
        stderr (`bytes`, *optional*, defaults to `b""`): The end of standard error.
        reports (`tuple[bytes, ...]`, *optional*, defaults to `()`):
            Lines that the harness in the process wrote, at most one for each case. The program can forge them.
    """

    outcome: Outcome
    stdout: bytes = b""
    stderr: bytes = b""
    reports: tuple[bytes, ...] = ()
