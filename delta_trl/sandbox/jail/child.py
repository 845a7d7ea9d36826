"""One execution: lock the process down, then run its job."""

import fcntl
import json
import os
import resource
import signal
import traceback

from . import libc, program, seccomp, suite
from .jail import BEGUN, LIBRARY, LINK, RESULT, Jail


FILES = 4  # of each process: job, stdout, stderr, reports
KINDS = {"stdin": program.run_stdin, "calls": program.run_calls, "program": suite.serve, "suite": suite.run}


def run(
    index: int,
    descriptors: list[int],
    begun: int,
    link: int | None,
    limits: dict[str, int],
    jail: Jail,
    zygote_pid: int,
) -> None:
    """
    Become the job's process. Does not return.

    It is the process `index` of a pair that is connected by `link`, and sends this index to `begun` when the program
    begins. `descriptors` has the files of both, `limits` is from `Limits.of_kernel`.
    """
    status = 70  # reached only if the harness itself fails
    try:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote_pid and jail.tier != "A":  # in tier A the namespace dies with the zygote
            os._exit(status)
        files = descriptors[FILES * index :][:FILES]
        with open(os.dup(files[0]), "rb") as file:
            file.seek(0)
            job = json.load(file)
        arrange({1: files[1], 2: files[2], RESULT: files[3], LINK: link, BEGUN: begun}, jail.library)
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
        # Standard input is a file, too: it must fit the limit of file sizes.
        largest_input = max((len(text) for text in job.get("inputs", []) if isinstance(text, str)), default=0)
        limits["RLIMIT_FSIZE"] = max(limits["RLIMIT_FSIZE"], 4 * largest_input)
        limits["RLIMIT_AS"] += jail.own_bytes
        set_limits(limits)
        os.umask(0o077)
        if jail.tier != "unsafe":
            seccomp.install_for(os.getpid(), writable=jail.landlock >= 3)
        os.write(BEGUN, bytes([index]))
        os.close(BEGUN)  # not for the program
        status = KINDS[job["kind"]](job)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def arrange(wanted: dict[int, int | None], library: int) -> None:
    """Move descriptors to where the job expects them, and close all others but the library's directories."""
    wanted[0] = os.memfd_create("stdin")
    # first out of the way, so that no move overwrites a descriptor that is still to be moved
    high = {target: fcntl.fcntl(source, fcntl.F_DUPFD, 64) for target, source in wanted.items() if source is not None}
    os.closerange(0, 64)
    for target, source in high.items():
        os.dup2(source, target)
    os.closerange(max(high) + 1, LIBRARY)
    os.closerange(LIBRARY + library, 65536)


def set_limits(limits: dict[str, int]) -> None:
    """
    Limit what the process can use. Soft and hard limits are equal, except for processor time (SIGXCPU, a second later
    SIGKILL) and the stack (its hard limit stays).
    """
    for name, value in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, {"RLIMIT_CPU": value + 1, "RLIMIT_STACK": hard}.get(name, value)))
