"""One execution: lock the process down, then run its job."""

import ctypes  # noqa: F401 (imported before the jail closes)
import fcntl
import json
import os
import resource
import signal

from ..calls import unlimited_integers
from . import libc, program, seccomp, suite
from .jail import BEGUN, LIBRARY, LINK, RESULT, Jail


KINDS = {"stdin": program.run_stdin, "calls": program.run_calls, "program": suite.serve, "suite": suite.run}


def run(files: list[int], begun: int, link: int | None, limits: dict, jail: Jail, zygote_pid: int) -> None:
    """
    Become the job's process. Does not return.

    Args:
        files (`list[int]`): Descriptors of the job, stdout, stderr and the reports.
        begun (`int`): Descriptor on which the process reports that the program begins.
        link (`int | None`): Socket to the other process of a pair.
        limits (`dict`): See `set_limits`.
        jail (`Jail`): What the zygote is confined to.
        zygote_pid (`int`): The parent; a child that outlived it must end.
    """
    status = 70  # reached only if the harness itself fails
    try:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote_pid and jail.tier != "A":  # in tier A the namespace dies with the zygote
            os._exit(status)
        with open(os.dup(files[0]), "rb") as file:
            file.seek(0)
            job = json.load(file)
        arrange({1: files[1], 2: files[2], RESULT: files[3], LINK: link, BEGUN: begun}, len(jail.library))
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
        largest_input = max((len(text) for text in job.get("inputs", []) if isinstance(text, str)), default=0)
        set_limits(limits | {"memory_bytes": limits["memory_bytes"] + jail.preloaded_bytes}, 4 * largest_input)
        os.umask(0o077)
        if jail.tier != "unsafe":
            seccomp.install_for(os.getpid(), writable=jail.landlock >= 3)
        unlimited_integers()
        os.write(BEGUN, b".")
        os.close(BEGUN)  # not for the program
        status = KINDS[job["kind"]](job)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def arrange(wanted: dict[int, int | None], library: int) -> None:
    """Move descriptors to where the job expects them, and close all others but the library's directories."""
    wanted |= {LIBRARY + index: LIBRARY + index for index in range(library)}
    wanted[0] = os.memfd_create("stdin")
    # first out of the way, so that no move overwrites a descriptor that is still to be moved
    high = {target: fcntl.fcntl(source, fcntl.F_DUPFD, 64) for target, source in wanted.items() if source is not None}
    os.closerange(0, 64)
    for target, source in high.items():
        os.dup2(source, target)
    os.closerange(LIBRARY + library, 65536)


def set_limits(limits: dict, input_bytes: int) -> None:
    """
    Limit what one process can use. Soft and hard limits are equal, except for processor time (SIGXCPU, a second later
    SIGKILL) and the stack (its hard limit stays).

    Args:
        limits (`dict`):
            `cpu_seconds`, `memory_bytes` (of address space), `output_bytes`, `threads`, `open_files`, `stack_bytes`.
        input_bytes (`int`): Size of standard input, which is a file too and must fit the limit of file sizes.
    """
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, max(limits["output_bytes"], input_bytes)),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_NPROC, limits["threads"]),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_seconds"], limits["cpu_seconds"] + 1))  # SIGXCPU, SIGKILL
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    stack = limits["stack_bytes"] if hard == resource.RLIM_INFINITY else min(limits["stack_bytes"], hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))
