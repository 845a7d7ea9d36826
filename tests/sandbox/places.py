"""
Restricted places, made with what this machine supports: `python -m tests.sandbox.places PLACE -- COMMAND`.

Each is a list of steps that a process takes before it becomes the command. They need root.
"""

import contextlib
import errno
import os
import resource
import sys
from collections.abc import Callable

from delta_trl.sandbox.jail import libc, seccomp
from delta_trl.sandbox.jail.namespaces import CLONE_NEWNS, CLONE_NEWUSER, MS_BIND, MS_PRIVATE, MS_RDONLY, MS_REC


MS_REMOUNT = 32
SOMEBODY = 54321
THEIR_GROUP = 54322
# The numbers of unshare, setns, mount and pivot_root
CALLS = {
    "x86_64": (272, 308, 165, 155),
    "aarch64": (97, 268, 40, 41),
}
CLONE3 = 435
# Docker's default capabilities: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service,
# net_raw, sys_chroot, mknod, audit_write, setfcap
CONTAINER_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)


def own_mounts() -> None:
    libc.call("unshare", CLONE_NEWNS)
    libc.call("mount", "none", "/", None, MS_REC | MS_PRIVATE, None)


def read_only_root() -> None:
    own_mounts()
    libc.call("mount", "none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)


def open_home() -> None:
    """Show an interpreter below /root to ordinary users."""
    if sys.base_prefix.startswith("/root/"):
        own_mounts()
        held = os.open(sys.base_prefix, os.O_PATH)
        libc.call("mount", "none", "/root", "tmpfs", 0, "mode=755")
        os.makedirs(sys.base_prefix)
        libc.call("mount", f"/proc/self/fd/{held}", sys.base_prefix, None, MS_BIND | MS_REC, None)
        os.close(held)


def become_somebody() -> None:
    os.setgroups([])
    os.setresgid(THEIR_GROUP, THEIR_GROUP, THEIR_GROUP)
    os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
    libc.prctl(libc.PR_SET_DUMPABLE, 1)  # whose /proc/self belongs to them
    os.environ |= {"HOME": "/tmp", "XDG_CACHE_HOME": "/tmp/somebody"}


def become_root_alone() -> None:
    """Root of a user namespace with one id, as in a rootless container without subordinate ids."""
    maps = {
        "setgroups": "deny",
        "uid_map": f"0 {os.getuid()} 1",
        "gid_map": f"0 {os.getgid()} 1",
    }
    libc.call("unshare", CLONE_NEWUSER)
    for name, text in maps.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def drop_to_container() -> None:
    """Root has no other capabilities once it runs the command."""
    for capability in set(range(64)).difference(CONTAINER_CAPABILITIES):
        with contextlib.suppress(OSError):  # beyond the last one
            libc.prctl(24, capability)  # PR_CAPBSET_DROP


def deny_namespaces() -> None:
    """Have system calls fail, for ever, as a container's seccomp profile does."""
    calls = CALLS[os.uname().machine]
    codes = {**dict.fromkeys(calls, errno.EPERM), CLONE3: errno.ENOSYS}
    program = [seccomp._instruction(seccomp.LOAD, seccomp.OFFSET_NUMBER)]
    for number, code in codes.items():
        program.append(seccomp._instruction(seccomp.JUMP_EQUAL, number, 0, 1))
        program.append(seccomp._refuse(code))
    program.append(seccomp._return(seccomp.ALLOW))
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(b"".join(program))


PLACES: dict[str, list[Callable[[], None]]] = {
    "unprivileged": [open_home, become_somebody],
    "container": [drop_to_container, deny_namespaces],
    "unprivileged container": [open_home, become_somebody, deny_namespaces],
    "read-only root": [read_only_root],
    "rootless": [open_home, become_somebody, become_root_alone],
    "rootless container": [open_home, become_somebody, become_root_alone, deny_namespaces],
    "few descriptors": [lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))],
}


def main(arguments: list[str]) -> None:
    place, separator, *command = arguments
    assert separator == "--", __doc__
    for step in PLACES[place]:
        step()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
