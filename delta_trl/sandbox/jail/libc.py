"""System calls that Python does not offer, through ctypes."""

import ctypes
import os
import platform
from typing import Any


_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38

SYSCALLS = {
    "x86_64": {"pivot_root": 155, "capset": 126},
    "aarch64": {"pivot_root": 41, "capset": 91},
}
# Numbers that every architecture shares.
COMMON = {"landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446}


def _check(result: int, name: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def syscall(name: str, *args: Any) -> int:
    """Make a system call by name; raises OSError with the name of the call."""
    number = COMMON.get(name) or SYSCALLS[platform.machine()][name]
    return _check(_libc.syscall(ctypes.c_long(number), *args), name)


def prctl(option: int, *args: Any) -> int:
    padded = (*args, 0, 0, 0, 0)[:4]
    words = [word if isinstance(word, ctypes._SimpleCData) else ctypes.c_ulong(word) for word in padded]
    return _check(_libc.prctl(ctypes.c_int(option), *words), f"prctl({option})")


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _check(_libc.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3]), f"mount {target}")


def umount_detach(target: str) -> None:
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(2)), f"umount {target}")


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    syscall("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
