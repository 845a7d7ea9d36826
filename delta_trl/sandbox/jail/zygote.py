"""The zygote: a clean interpreter inside the jail, forked once per execution.

It sees limits and descriptors, never code, inputs or expected outputs, so no program inherits another's text. It only
starts and ends processes: the host judges what a program wrote.
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
import time

from ..calls import unlimited_integers
from . import child, seccomp
from .jail import Jail, empty


POLL_SECONDS = 0.2
END_SECONDS = 0.05  # that the program's process may take to end after that of the tests
MAX_DESCRIPTORS = 2 * child.FILES
PRELOADED = "array cmath dataclasses decimal fractions queue traceback"  # besides what `calls` imports


def preload(packages: list[str]) -> int:
    """Import what most programs import, once. Return the address space of the process, in bytes."""
    unlimited_integers()
    for name in PRELOADED.split():
        importlib.import_module(name)
    site.setquit()  # exit() and quit(), which an interpreter without site-packages does not have
    for name in packages:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def prepare(jail: Jail) -> None:
    """Prepare for forks. Runs before the worker reports that it is ready, so that a failure shows then."""
    if jail.tier != "unsafe":
        seccomp.template(jail.landlock >= 3)
    for name in [name for name in sys.modules if name.partition(".")[0] == "delta_trl"]:
        del sys.modules[name]  # programs must not import it
    gc.collect()
    sys.orig_argv.clear()  # it names the trainer's process and paths
    gc.freeze()  # a child's collector must not touch, and so copy, the pages shared with it


def serve(channel: socket.socket, jail: Jail) -> None:
    """Execute requests until the host closes the channel. What a program has written is deleted after it."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 65536, MAX_DESCRIPTORS)
        if not message:
            return
        reply = execute(json.loads(message), descriptors, channel, jail)
        for descriptor in descriptors:
            os.close(descriptor)
        reply["reusable"] = jail.temporary is None or empty(jail.temporary)
        channel.send(json.dumps(reply).encode())


def execute(request: dict, descriptors: list[int], channel: socket.socket, jail: Jail) -> dict:
    """
    Run one process, or a pair; the second of a pair is ended when the first ends.

    Each process sends a byte when its program begins, and the clock starts with the last one. If a process ends
    without that byte, the harness has failed, not the program; so the host can tell them apart. The second process of
    a pair need not have begun when the first ends, but must not have failed by itself. Nothing that a program does
    gives it more time.

    Returns:
        `dict`: `timed_out`, `begun` (whether it counts), and `processes`, see `end`.
    """
    limits, wall_seconds, count = request["limits"], request["wall_seconds"], request["processes"]
    if jail.tasks is not None:  # threads count per user there, so add those that exist
        limits["RLIMIT_NPROC"] += int(os.pread(jail.tasks, 200, 0).split()[3].split(b"/")[1])
    # No pipe: a program could reopen its reading end through /proc/self/fd, and take the reports back.
    beginnings, beginning = socket.socketpair()
    # Closed here once both processes have their ends, so that each notices when the other ends.
    links = socket.socketpair() if count == 2 else ()
    zygote_pid = os.getpid()
    deadline = time.monotonic() + wall_seconds
    pids: list[int] = []
    for index in range(count):
        pid = os.fork()
        if pid == 0:
            link = links[index].fileno() if links else None
            child.run(index, descriptors, beginning.fileno(), link, limits, jail, zygote_pid)
        pids.append(pid)
    for one in (*links, beginning):
        one.close()
    poll = select.poll()
    main_process = os.pidfd_open(pids[0])
    poll.register(main_process, select.POLLIN)
    poll.register(channel, select.POLLHUP | select.POLLRDHUP)
    ended: list = []
    begun: set[int] = set()
    timed_out = False
    # Beginnings are not polled: to wake up for each would cost more than a short program itself.
    while not ended and not timed_out:
        ended = poll.poll(max(0, min(deadline - time.monotonic(), POLL_SECONDS)) * 1000)
        if not ended and len(begun) < count and (new := received(beginnings)):
            begun |= new
            deadline = time.monotonic() + wall_seconds
        timed_out = not ended and deadline <= time.monotonic()
    processes = [end(pid, END_SECONDS if index and not timed_out else 0) for index, pid in enumerate(pids)]
    begun |= received(beginnings)
    os.close(main_process)
    beginnings.close()
    was_late = count == 2 and begun == {0} and processes[1]["by_zygote"] and not timed_out
    return {"processes": processes, "timed_out": timed_out, "begun": len(begun) == count or was_late}


def received(beginnings: socket.socket) -> set[int]:
    """Which processes have begun since the last call."""
    with contextlib.suppress(BlockingIOError):
        return set(beginnings.recv(8, socket.MSG_DONTWAIT))
    return set()


def end(pid: int, seconds: float) -> dict:
    """
    End a process and reap it. It may end by itself in these seconds: one that the machine has killed, or that notices
    the end of the other one.

    Returns:
        `dict`: Its `status` as from wait4, `cpu_seconds`, and `by_zygote`: whether it was killed here.
    """
    if seconds:
        descriptor = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(seconds * 1000)
        os.close(descriptor)
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    return {"status": status, "cpu_seconds": usage.ru_utime + usage.ru_stime, "by_zygote": not ended}
