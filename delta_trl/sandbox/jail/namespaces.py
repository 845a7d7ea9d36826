"""Tier A: namespaces of its own (user, mount, process, network, IPC and host-name namespaces)."""

import os
import struct

from ..limits import TEMPORARY_BYTES
from . import libc


CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NEW_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
MS_RDONLY = 1  # these four are the same for mount_setattr
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
AT_RECURSIVE = 0x8000
NOBODY = 65534


def enter() -> None:
    """
    Continue as PID 1 of new namespaces. The original process only waits for it to end.

    Seen from outside, a jail that root starts runs as root until root is given up; any other user's jail runs as that
    user, and so does root's where a rootless container has no other user. Inside, the program is always nobody.
    """
    pid = os.getpid()
    maps = id_maps()
    ready_read, ready_write = os.pipe()
    helper = os.fork()
    if helper == 0:  # the maps must be written from outside the new namespace
        try:
            os.close(ready_write)  # or the helper would wait for itself if unshare fails
            if os.read(ready_read, 1):
                for name, text in maps.items():
                    _write(f"/proc/{pid}/{name}", text)
                os._exit(0)
        finally:
            os._exit(1)
    try:
        libc.call("unshare", NEW_NAMESPACES)
        os.write(ready_write, b"1")
    finally:
        os.close(ready_read)
        os.close(ready_write)
        _, status = os.waitpid(helper, 0)
    if status:
        raise OSError("the maps of user and group ids could not be written")
    if child := os.fork():
        os.waitpid(child, 0)
        os._exit(0)


def id_maps() -> dict[str, str]:
    """The files of /proc to write for a new namespace, in this order, with their contents."""
    if may_change_user():
        text = f"0 0 1\n{NOBODY} {NOBODY} 1\n"
        return {"uid_map": text, "gid_map": text}
    # an ordinary user may map only their own id, and only after giving up setgroups
    return {
        "setgroups": "deny",
        "uid_map": f"{NOBODY} {os.getuid()} 1\n",
        "gid_map": f"{NOBODY} {os.getgid()} 1\n",
    }


def may_change_user() -> bool:
    """Whether this is root, and there is another user: a rootless container may have root alone."""
    if os.getuid() != 0:
        return False
    with open("/proc/self/uid_map") as file:
        for line in file:
            first, _, count = map(int, line.split())
            if first <= NOBODY < first + count:
                return True
    return False


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def build_root(readable: list[str], devices: list[str], temporary: str) -> None:
    """Make a file system that has these paths and an empty temporary directory, and nothing else; make it `/`."""
    root = "/proc"  # exists everywhere, and holds none of the paths that are bound below
    libc.call("mount", "none", "/", None, MS_REC | MS_PRIVATE, None)
    libc.call("mount", "tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=1024,mode=755")
    for path in readable:
        _bind(path, root, MS_RDONLY | MS_NOSUID | MS_NODEV)
    for path in devices:
        _bind(path, root, MS_NOSUID | MS_NOEXEC)
    os.makedirs(root + temporary, exist_ok=True)
    os.chdir(root)
    libc.call("pivot_root", ".", ".")  # the old root now lies on top of the new one
    libc.call("umount2", ".", MNT_DETACH)
    os.chdir("/")
    options = f"size={TEMPORARY_BYTES},nr_inodes=256,mode=1777"
    libc.call("mount", "tmpfs", temporary, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
    _restrict("/", MS_RDONLY | MS_NOSUID | MS_NODEV, 0)


def _bind(path: str, root: str, flags: int) -> None:
    """Show a file or a directory at its place below another root."""
    target = root + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _write(target, "")
    libc.call("mount", os.path.realpath(path), target, None, MS_BIND | MS_REC, None)
    _restrict(target, flags, AT_RECURSIVE)


def _restrict(target: str, flags: int, which: int) -> None:
    """Set flags of a mount. Those that it has stay: a user namespace may not remove any."""
    attributes = struct.pack("4Q", flags, 0, 0, 0)
    libc.call("mount_setattr", 0, target, which, attributes, len(attributes))
