"""First process of a worker: starts the zygote in its jail, and ends when the trainer or the zygote does.

It exists because nothing else notices the end of both: the zygote cannot see the trainer from its process namespace,
and PR_SET_PDEATHSIG reports the end of the *thread* that started a process, which need not be the trainer's main one.
"""

import fcntl
import json
import os
import select
import signal
import socket
import sys

from . import libc, namespaces, zygote
from .jail import confine


def main(settings: dict) -> None:
    """
    Run a worker.

    Args:
        settings (`dict`):
            `parent` (the trainer's pid), `socket` (descriptor of the channel to it), `packages` (what programs may
            import besides the standard library), and `jail` (the arguments of `confine`).
    """
    restore_signals()
    os.environ.pop("LD_LIBRARY_PATH", None)
    parent = os.pidfd_open(settings["parent"])
    if os.getppid() != settings["parent"]:
        return  # the trainer was gone before it could be watched
    # The low numbers are for the library's directories and for a child's descriptors.
    channel = socket.socket(fileno=fcntl.fcntl(settings["socket"], fcntl.F_DUPFD_CLOEXEC, 64))
    os.close(settings["socket"])
    try:
        if settings["jail"]["tier"] == "A":
            namespaces.enter(os.getuid() == 0)
        child = os.fork()
    except OSError as error:
        channel.send(json.dumps({"fatal": str(error)}).encode())
        return
    if child == 0:
        os.close(parent)
        become_zygote(channel, settings)
    channel.close()
    watched = select.poll()
    watched.register(parent, select.POLLIN)
    watched.register(os.pidfd_open(child), select.POLLIN)
    watched.poll()
    os.kill(child, signal.SIGKILL)  # ends everything in its namespace, too
    os.waitpid(child, 0)


def restore_signals() -> None:
    """As a fresh Python has them: what the trainer blocks and ignores is inherited."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python itself ignores these two
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def become_zygote(channel: socket.socket, settings: dict) -> None:
    """Confine the process and serve. Does not return."""
    try:
        library = list(sys.path)
        sys.path += settings["jail"]["sites"]
        own_bytes = zygote.preload(settings["packages"])
        sys.path[:] = library  # nothing else of them is offered
        jail = confine(**settings["jail"])
        jail.own_bytes = own_bytes
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)  # only now: a change of user id clears it
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
        zygote.prepare(jail)
        channel.send(b'{"ready": true}')
        zygote.serve(channel, jail)
    except Exception as error:
        problem = str(error) if isinstance(error, OSError) else repr(error)
        channel.send(json.dumps({"fatal": problem}).encode())
    finally:
        os._exit(0)
