"""Tier A: namespaces of its own (user, mount, process, network, IPC and host-name namespaces)."""

import os

from . import libc


CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND = 32, 1024, 2048, 4096
MS_REC, MS_PRIVATE, MS_RELATIME = 16384, 1 << 18, 1 << 21
# Flags of a mount as statvfs reports them, and as mount takes them. A user namespace may not remove any of them.
LOCKED_FLAGS = {
    os.ST_RDONLY: MS_RDONLY, os.ST_NOSUID: MS_NOSUID, os.ST_NODEV: MS_NODEV, os.ST_NOEXEC: MS_NOEXEC,
    os.ST_NOATIME: MS_NOATIME, os.ST_NODIRATIME: MS_NODIRATIME, os.ST_RELATIME: MS_RELATIME,
}  # fmt: skip
NOBODY = 65534


def enter(is_root: bool) -> None:
    """
    Move the calling process into new namespaces; its next child is the first process of the new process tree.

    Seen from outside, a jail that root starts runs as root until the child calls `become_nobody`; any other user's
    jail runs as that user. Inside, the program is always nobody.
    """
    uid, gid, pid = os.getuid(), os.getgid(), os.getpid()
    ready_read, ready_write = os.pipe()
    helper = os.fork()
    if helper == 0:  # the maps must be written from outside the new namespace
        try:
            os.close(ready_write)  # or the helper would wait for itself if unshare fails
            if os.read(ready_read, 1):
                _write_maps(pid, uid, gid, is_root)
                os._exit(0)
        finally:
            os._exit(1)
    try:
        libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
        os.write(ready_write, b"1")
    finally:
        os.close(ready_read)
        os.close(ready_write)
        _, status = os.waitpid(helper, 0)
    if status:
        raise OSError("the maps of user and group ids could not be written")


def _write_maps(pid: int, uid: int, gid: int, is_root: bool) -> None:
    if not is_root:  # an ordinary user may map only their own id, and only after giving up setgroups
        _write(f"/proc/{pid}/setgroups", "deny")
    for name, identity in (("uid_map", uid), ("gid_map", gid)):
        own = f"0 {identity} 1\n{NOBODY} {NOBODY} 1\n" if is_root else f"{NOBODY} {identity} 1\n"
        _write(f"/proc/{pid}/{name}", own)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def build_root(readable: list[str], devices: list[str], temporary: str, temporary_bytes: int) -> None:
    """Make a file system that has these paths and an empty temporary directory, and nothing else; make it `/`."""
    root = "/proc"  # exists everywhere, and holds none of the paths that are bound below
    libc.mount("none", "/", None, MS_REC | MS_PRIVATE)
    libc.mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=1024,mode=755")
    for path in readable:
        target = root + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _touch(target)
        _bind(os.path.realpath(path), target, MS_RDONLY | MS_NOSUID | MS_NODEV)
    for path in devices:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        _touch(root + path)
        _bind(path, root + path, MS_NOSUID | MS_NOEXEC)
    os.makedirs(root + temporary, exist_ok=True)
    os.chdir(root)
    libc.syscall("pivot_root", b".", b".")  # the old root now lies on top of the new one
    libc.umount_detach(".")
    os.chdir("/")
    options = f"size={temporary_bytes},nr_inodes=256,mode=1777"
    libc.mount("tmpfs", temporary, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
    libc.mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def _bind(source: str, target: str, flags: int) -> None:
    libc.mount(source, target, None, MS_BIND | MS_REC)
    present = os.statvfs(target).f_flag
    kept = sum(flag for reported, flag in LOCKED_FLAGS.items() if present & reported)
    libc.mount("none", target, None, MS_REMOUNT | MS_BIND | flags | kept)


def become_nobody() -> None:
    """Give up the mapped root, if there was one, and every capability."""
    if os.getuid() != NOBODY:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    libc.drop_capabilities()
