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

from . import child, seccomp
from .jail import Jail, empty


POLL_SECONDS = 0.2
END_SECONDS = 0.05  # that the program's process may take to end after that of the tests
FILES = 4  # that each process gets: job, stdout, stderr, reports
MAX_DESCRIPTORS = 2 * FILES
PRELOADED = (
    "array bisect cmath collections copy dataclasses datetime decimal fractions functools heapq itertools math "
    "operator queue random re string traceback typing"
)


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


def preload() -> int:
    """Import what most programs import, once. Return the address space that numpy takes, in bytes."""
    for name in PRELOADED.split():
        importlib.import_module(name)
    site.setquit()  # exit() and quit(), which an interpreter without site-packages does not have
    before = address_space()
    with contextlib.suppress(ImportError):
        importlib.import_module("numpy")
    return address_space() - before


def address_space() -> int:
    """Of this process, in bytes; 0 without /proc."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def execute(request: dict, descriptors: list[int], channel: socket.socket, jail: Jail) -> dict:
    """
    Run one process, or a pair; the second of a pair is ended when the first ends.

    Each process sends a byte when its program begins, and the clock starts then. If a process ends without that byte,
    the harness has failed, not the program; so the host can tell them apart. The second process of a pair need not
    have begun when the first ends, but must not have failed by itself.

    Nothing that a program does gives it more time.
    """
    limits, wall_seconds = request["limits"], request["wall_seconds"]
    if jail.tasks is not None:  # threads count per user there, so add those that exist
        limits["threads"] += int(os.pread(jail.tasks, 200, 0).split()[3].split(b"/")[1])
    # No pipe: a program could reopen its reading end through /proc/self/fd, and take the reports back.
    # One for each process, so that it is known which of them has begun.
    beginnings = [socket.socketpair() for _ in range(request["processes"])]
    started = time.monotonic()
    zygote_pid = os.getpid()
    pids: list[int] = []
    # Closed here once both processes have their ends, so that each notices when the other ends.
    links: tuple[socket.socket | None, ...] = socket.socketpair() if request["processes"] == 2 else (None,)
    for index, link in enumerate(links):
        pid = os.fork()
        if pid == 0:
            own = descriptors[FILES * index :][:FILES]
            beginning = beginnings[index][1].fileno()
            child.run(own, beginning, link.fileno() if link else None, limits, jail, zygote_pid)
        pids.append(pid)
    for link in filter(None, links):
        link.close()
    for outer, inner in beginnings:
        inner.close()
        outer.setblocking(False)
    main_process = os.pidfd_open(pids[0])
    poll = select.poll()
    poll.register(main_process, select.POLLIN)
    poll.register(channel, select.POLLHUP | select.POLLRDHUP)
    ready: dict[int, int] = {}
    timed_out = False
    begun = [False] * len(pids)
    deadline = started + wall_seconds
    # Beginnings are not polled: to wake up for each would cost more than a short program itself.
    while not ready and not timed_out:
        remaining = deadline - time.monotonic()
        ready = dict(poll.poll(max(0, min(remaining, POLL_SECONDS)) * 1000))
        if not ready and not all(begun) and update(begun, beginnings):
            deadline = time.monotonic() + wall_seconds
        timed_out = not ready and deadline <= time.monotonic()

    reports = []
    for index, pid in enumerate(pids):
        if index and main_process in ready:
            wait_for(pid)  # it notices the end of the first; one that the machine has killed is then known
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if not ended:
            os.kill(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
        reports.append({"status": status, "cpu_seconds": usage.ru_utime + usage.ru_stime, "by_zygote": not ended})
    update(begun, beginnings)
    os.close(main_process)
    for outer, _ in beginnings:
        outer.close()
    return {
        "processes": reports,
        "timed_out": timed_out,
        "begun": begun[0] and all(map(began_or_was_late, begun[1:], reports[1:], [timed_out])),
        "wall_seconds": time.monotonic() - started,
    }


def wait_for(pid: int) -> None:
    """Give a process a short time to end by itself."""
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(END_SECONDS * 1000)
    os.close(descriptor)


def began_or_was_late(begun: bool, report: dict, timed_out: bool) -> bool:
    """Whether the second process has begun, or was killed before it could because the first had ended."""
    return begun or (report["by_zygote"] and not timed_out)


def update(begun: list[bool], beginnings: list[tuple[socket.socket, socket.socket]]) -> bool:
    """Note which processes have begun; return whether that has changed."""
    before = list(begun)
    begun[:] = [done or has_byte(outer) for done, (outer, _) in zip(begun, beginnings, strict=True)]
    return begun != before


def has_byte(reports: socket.socket) -> bool:
    try:
        return reports.recv(1) != b""
    except BlockingIOError:
        return False
