"""Functions of libc and system calls that Python does not offer, through ctypes."""

import ctypes
import functools
import os
from typing import Any


_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38

# System calls without a function in libc. The numbers are the same on every architecture.
SYSCALLS = {
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}


def call(name: str, *args: Any) -> int:
    """Call by name, with machine words, texts, bytes and `None`; raises OSError with the name."""
    words = [ctypes.c_ulong(arg) if isinstance(arg, int) else arg for arg in args]
    words = [os.fsencode(arg) if isinstance(arg, str) else arg for arg in words]
    if name in SYSCALLS:
        function = functools.partial(_libc.syscall, ctypes.c_long(SYSCALLS[name]))
    else:
        function = getattr(_libc, name)
    result = function(*words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def prctl(option: int, value: int = 0, pointer: bytes | None = None) -> None:
    """`pointer` is the second argument of `PR_SET_SECCOMP`; the others have one."""
    call("prctl", option, value, pointer, 0, 0)
