"""One execution: lock the process down, then run its job."""

import fcntl
import json
import os
import resource
import signal
import socket
import traceback

from . import libc, program, seccomp, suite
from .confinement import LIBRARY, LINK, RESULT, Jail


FILES = 4  # of each process: job, stdout, stderr, reports
KINDS = {"stdin": program.run_stdin, "calls": program.run_calls, "program": suite.serve, "suite": suite.run}


def run(files: list[int], link: socket.socket | None, limits: dict[str, int], jail: Jail, zygote_pid: int) -> None:
    """
    Become the job's process. Does not return. Before the program has begun, a failure is the machine's, and ends the
    process by SIGKILL. No program can do that, since the filter is installed last.

    Args:
        files (`list[int]`): Descriptors of the job, stdout, stderr and reports.
        link (`socket.socket`, *optional*): To the other process of a pair.
        limits (`dict[str, int]`): From `Limits.of_kernel`.
        jail (`Jail`): What the zygote is confined to.
        zygote_pid (`int`): Its process id.
    """
    status = 1
    try:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote_pid:  # the zygote has ended before that
            os._exit(status)
        job_file, stdout, stderr, reports = files
        length = os.lseek(job_file, 0, os.SEEK_END)
        job = json.loads(os.pread(job_file, length, 0))
        os.ftruncate(job_file, 0)  # by which the host knows that the process had time to begin
        function = KINDS[job["kind"]]
        wanted = {0: os.memfd_create("stdin"), 1: stdout, 2: stderr, RESULT: reports}
        if link is not None:
            wanted[LINK] = link.fileno()
        arrange(wanted)
        # Standard input is a file, too, and never longer than the job, which has it as JSON in ASCII.
        limits["RLIMIT_FSIZE"] = max(limits["RLIMIT_FSIZE"], length)
        limits["RLIMIT_AS"] += jail.own_bytes
        set_limits(limits)
        os.umask(0o077)
        seccomp.install(seccomp.build())
    except BaseException:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        status = function(job)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def arrange(wanted: dict[int, int]) -> None:
    """Move descriptors to where the job expects them, and close the others below the library's directories."""
    # first out of the way, so that no move overwrites a descriptor that is still to be moved
    high = {target: fcntl.fcntl(source, fcntl.F_DUPFD, 64) for target, source in wanted.items()}
    os.closerange(0, 64)
    for target, source in high.items():
        os.dup2(source, target)
    os.closerange(LINK + 1, LIBRARY)


def set_limits(limits: dict[str, int]) -> None:
    """
    Limit what the process can use. Soft and hard limits are equal, except for processor time (SIGXCPU, a second later
    SIGKILL) and the stack (its hard limit stays).
    """
    for name, value in limits.items():
        kind = getattr(resource, name)
        _, inherited = resource.getrlimit(kind)
        if inherited != resource.RLIM_INFINITY:
            value = min(value, inherited)
        hard = {"RLIMIT_CPU": value + 1, "RLIMIT_STACK": inherited}.get(name, value)
        resource.setrlimit(kind, (value, hard))
