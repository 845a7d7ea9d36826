"""The zygote: a clean interpreter inside the jail, forked once per execution.

It sees limits and descriptors, never code, inputs or expected outputs, so no program inherits another's text. It only
starts and ends processes: the host judges what a program wrote. It ends when the host closes the channel, as when the
trainer ends.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import site
import socket
import sys

from ..limits import PACKAGES, WORKER_FILES
from . import child, libc, namespaces, seccomp
from .confinement import Jail, confine, empty


# What the program's process may take to end after that of the tests: the machine may have killed it, or it notices.
END_SECONDS = 0.05
MAX_DESCRIPTORS = 2 * child.FILES
PRELOADED = "array cmath dataclasses decimal fractions queue traceback".split()  # besides what `calls` imports


def main(tier: str, readable: list[str], sites: list[str], temporary: str) -> None:
    """
    Run a worker, whose channel to the host is its standard input. Does not return. The arguments are those of
    `confine`.
    """
    channel = socket.socket(fileno=0)
    try:
        restore_signals()
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (WORKER_FILES, most_files))
        os.environ.pop("LD_LIBRARY_PATH", None)
        if tier == "A":
            namespaces.enter()
        library = list(sys.path)
        sys.path += sites
        own_bytes = preload()
        sys.path[:] = library  # nothing else of the sites is offered
        jail = confine(tier, readable, sites, temporary)
        jail.own_bytes = own_bytes
        if tier == "A":  # only now: a change of user id clears it
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
        prepare(jail)
        channel.send(b'{"ready": true}')
        serve(channel, jail)
    except Exception as error:
        with contextlib.suppress(OSError):  # the trainer has gone
            channel.send(json.dumps({"fatal": repr(error)}).encode())
    finally:
        os._exit(0)


def restore_signals() -> None:
    """Reset signals: this process has inherited what the trainer blocks and ignores."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python itself ignores these two
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def preload() -> int:
    """Import what most programs import, once. Return the address space of the process, in bytes."""
    sys.set_int_max_str_digits(0)  # long answers are legitimate
    site.setquit()  # exit() and quit(), which an interpreter without site-packages does not have
    for name in (*PRELOADED, *PACKAGES):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def prepare(jail: Jail) -> None:
    """Prepare for forks. Runs before the worker reports that it is ready, so that a failure shows then."""
    seccomp.build()  # once for all children
    for name in list(sys.modules):
        if name.startswith("sandbox"):
            del sys.modules[name]  # programs must not import this package
    gc.collect()
    sys.orig_argv.clear()  # it names the trainer's process and paths
    gc.freeze()  # a child's collector must not touch, and so copy, the pages shared with it


def serve(channel: socket.socket, jail: Jail) -> None:
    """Execute requests until the host closes the channel. What a program has written is deleted after it."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 65536, MAX_DESCRIPTORS)
        if not message:
            return
        ends = execute(json.loads(message), descriptors, channel, jail)
        for descriptor in descriptors:
            os.close(descriptor)
        reply = {"ends": ends, "reusable": jail.temporary is None or empty(jail.temporary)}
        channel.send(json.dumps(reply).encode())


def execute(request: dict, descriptors: list[int], channel: socket.socket, jail: Jail) -> list:
    """
    Run one process, or a pair that a socket links; the second of a pair is ended when the first ends. The clock starts
    here: nothing that a program does gives it more time.

    Returns:
        `list`: Of each process, what `end` returns.
    """
    limits = request["limits"]
    if jail.tasks is not None:  # threads count per user there, so add those that exist
        limits["RLIMIT_NPROC"] += existing_threads(jail.tasks)
    links = socket.socketpair() if len(descriptors) > child.FILES else [None]
    zygote_pid = os.getpid()
    pids: list[int] = []
    for index, link in enumerate(links):
        pid = os.fork()
        if pid == 0:
            files = descriptors[child.FILES * index :][: child.FILES]
            child.run(files, link, limits, jail, zygote_pid)
        pids.append(pid)
    for link in links:
        if link is not None:  # each process has its end, and notices when the other one ends
            link.close()
    ends = []
    seconds = request["wall_seconds"]
    for pid in pids:
        wait_for(pid, seconds, channel)
        ends.append(end(pid))
        seconds = END_SECONDS
    return ends


def existing_threads(loadavg: int) -> int:
    """The number of threads on this machine, from /proc/loadavg: `0.20 0.18 0.12 1/80 11206` says 80."""
    *_, tasks, _ = os.pread(loadavg, 200, 0).split()
    return int(tasks.partition(b"/")[2])


def wait_for(pid: int, seconds: float, channel: socket.socket) -> None:
    """Wait for the end of a process, for some time, but no longer than the trainer lives."""
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(channel, select.POLLHUP | select.POLLRDHUP)
    poll.poll(seconds * 1000)
    os.close(descriptor)


def end(pid: int) -> tuple[int | None, float]:
    """End and reap a process. Return its exit code, `None` if it had not ended, and its processor time in seconds."""
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status) if ended else None
    if not ended:
        os.kill(pid, signal.SIGKILL)
        _, _, usage = os.wait4(pid, 0)
    return code, usage.ru_utime + usage.ru_stime
