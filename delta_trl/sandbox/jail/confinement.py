"""Confines the zygote, and with it everything that it forks. Nothing here can be undone by the process itself."""

import fcntl
import os
import random
import shutil
import struct
import sys
from dataclasses import dataclass

from . import landlock, libc, namespaces


DEVICES = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"]
# Descriptors of a child after the standard ones: for its reports to the host, for the link to the other process of a
# pair, and (from `LIBRARY` on) for the directories of the library.
RESULT = 3
LINK = 4
LIBRARY = 100
# Uids that belong to nobody, one per worker, which makes its threads countable. A user namespace, be it tier A's or a
# container's, does not map them; there workers run as nobody.
FIRST_SPARE_UID = 1_900_000_000
SPARE_UIDS = 200_000_000
CAPABILITIES_VERSION_3 = 0x20080522


@dataclass
class Jail:
    """
    What the zygote was confined to.

    Args:
        temporary (`str`, *optional*): The directory that programs may write to, in tier A.
        tasks (`int`, *optional*):
            Descriptor of /proc/loadavg; set where the kernel counts threads per user, together with the trainer's.
        own_bytes (`int`, *optional*, defaults to `0`):
            Address space of the zygote, which programs get besides what they are promised.
    """

    temporary: str | None = None
    tasks: int | None = None
    own_bytes: int = 0


def confine(tier: str, readable: list[str], sites: list[str], temporary: str) -> Jail:
    """
    Confine the calling process; for tier "A", `namespaces.enter` comes first.

    It may read `readable`, where `sites` hold packages that are imported already, and in tier A write to `temporary`.

    Raises:
        OSError: If a part of the tier cannot be set up.
    """
    jail = Jail()
    may_change_user = namespaces.may_change_user()  # asked while /proc can be read
    if tier == "A":
        namespaces.build_root(readable, DEVICES, temporary)
        jail.temporary = temporary
    elif may_change_user:
        hold_library(sites)
    else:
        jail.tasks = os.open("/proc/loadavg", os.O_RDONLY)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict(readable, DEVICES, [temporary] if jail.temporary else [])
    if may_change_user:  # after Landlock: only root may be able to reach the library by its path
        become_a_spare_user()
    libc.call("capset", struct.pack("Ii", CAPABILITIES_VERSION_3, 0), bytes(24))
    os.chdir(jail.temporary or "/")
    return jail


def hold_library(sites: list[str]) -> None:
    """
    Keep the directories of the library open and import from there. Once root is given up, a library below a home
    directory cannot be reached by its path. Landlock checks where a file is, not how it was reached.
    """
    places = {}
    for path in filter(os.path.isdir, [*sys.path, *sites]):
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)  # O_PATH has no position, which programs would share
        places[path] = f"/proc/self/fd/{fcntl.fcntl(descriptor, fcntl.F_DUPFD, LIBRARY)}"
        os.close(descriptor)
    sys.path[:] = [places[path] for path in sys.path if path in places]
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):  # packages whose other modules may be imported later
        for entry in list(getattr(module, "__path__", [])):
            roots = [path for path in places if entry.startswith(f"{path}/")]
            if roots:
                root = max(roots, key=len)
                module.__path__ = [places[root] + entry.removeprefix(root)]


def become_a_spare_user() -> None:
    spare = FIRST_SPARE_UID + random.randrange(SPARE_UIDS)
    os.setgroups([])
    try:
        become(spare)
    except OSError:
        become(namespaces.NOBODY)


def become(identity: int) -> None:
    os.setresgid(identity, identity, identity)
    os.setresuid(identity, identity, identity)


def empty(directory: str) -> bool:
    """Delete everything in a directory; False if something stayed."""
    try:
        for entry in list(os.scandir(directory)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    except (OSError, RecursionError):
        return False
    return True
