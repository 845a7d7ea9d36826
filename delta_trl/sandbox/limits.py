"""The limits of an execution, and its result."""

import enum
import math
import resource
from dataclasses import asdict, dataclass


STACK_BYTES = 64 << 20
ENFORCED_BY = {
    "stack_bytes": "RLIMIT_STACK",
    "cpu_seconds": "RLIMIT_CPU",
    "memory_bytes": "RLIMIT_AS",
    "output_bytes": "RLIMIT_FSIZE",
    "threads": "RLIMIT_NPROC",
    "open_files": "RLIMIT_NOFILE",
}


@dataclass(frozen=True)
class Limits:
    """
    Limits of one execution.

    Args:
        wall_seconds (`float`, *optional*, defaults to `6.0`): Wall-clock time.
        cpu_seconds (`float`, *optional*):
            Processor time of all threads together; by default what one thread can use in `wall_seconds`.
        memory_mb (`int`, *optional*, defaults to `1024`): Address space, in MiB.
        output_bytes (`int`, *optional*, defaults to `32 << 20`):
            Limit of standard output; the same for standard error and for a returned value.
        threads (`int`, *optional*, defaults to `64`):
            Threads, the main one included. Other processes cannot be started at all.
        open_files (`int`, *optional*, defaults to `64`): Open descriptors, including the few of the harness.
    """

    wall_seconds: float = 6.0
    cpu_seconds: float | None = None
    memory_mb: int = 1024
    output_bytes: int = 32 << 20
    threads: int = 64
    open_files: int = 64

    def __post_init__(self):
        for name, value in asdict(self).items():
            if value is not None and not value > 0:
                raise ValueError(f"Limits need positive numbers, got {name}={value!r}.")

    def as_request(self) -> dict:
        """The limits as the jail reads them."""
        return {
            "stack_bytes": STACK_BYTES,
            "cpu_seconds": math.ceil(self.cpu_seconds or self.wall_seconds + 1),
            "memory_bytes": self.memory_mb << 20,
            "output_bytes": self.output_bytes,
            "threads": self.threads,
            "open_files": self.open_files,
        }

    def lowered(self) -> str | None:
        """`None`, or which hard limit of this process, which workers inherit, is below what is promised here."""
        for key, kind in ENFORCED_BY.items():
            _, hard = resource.getrlimit(getattr(resource, kind))
            if hard != resource.RLIM_INFINITY and hard < (promised := self.as_request()[key]):
                return f"{kind} of this process is {hard}, and programs are promised {key}={promised}"
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
        stdout (`bytes`, *optional*, defaults to `b""`): Standard output, as bytes.
        stderr (`bytes`, *optional*, defaults to `b""`): The end of standard error, as bytes.
        exit_status (`int`, *optional*):
            As `os.waitstatus_to_exitcode` gives it (negative: the signal); `None` if the sandbox failed.
        wall_seconds (`float`, *optional*, defaults to `0.0`): Wall-clock time.
        cpu_seconds (`float`, *optional*, defaults to `0.0`): Processor time.
        reports (`tuple[bytes, ...]`, *optional*, defaults to `()`):
            Lines that the harness in the process wrote, at most one for each case. The program can forge them.
    """

    outcome: Outcome
    stdout: bytes = b""
    stderr: bytes = b""
    exit_status: int | None = None
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    reports: tuple[bytes, ...] = ()
