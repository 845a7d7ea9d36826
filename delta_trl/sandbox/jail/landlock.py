"""Landlock: limits which files this process and its children may open. It cannot be undone.

Source: https://docs.kernel.org/userspace-api/landlock.html
"""

import os
import stat
import struct

from . import libc


EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REFER = 1 << 13
ALL_OF_ABI_1 = REFER - 1
VERSION_FLAG = 1
RULE_PATH_BENEATH = 1


def restrict(readable: list[str], devices: list[str], writable: list[str]) -> None:
    """
    Deny the opening of every file except these.

    Needs no_new_privs. OSError if the kernel has no Landlock, or has it turned off. What its later versions also bar
    (TCP, signals, sockets, truncation, devices), the seccomp filter bars on every kernel.

    Args:
        readable (`list[str]`): Files and directories to read.
        devices (`list[str]`): Files to read and write, such as /dev/null.
        writable (`list[str]`): Directories with all rights but execution.
    """
    version = libc.call("landlock_create_ruleset", None, 0, VERSION_FLAG)
    files = ALL_OF_ABI_1 | (REFER if version >= 2 else 0)  # which the first version denies
    attributes = struct.pack("Q", files)
    ruleset = libc.call("landlock_create_ruleset", attributes, len(attributes), 0)
    try:
        for path in readable:
            _allow(ruleset, path, READ_FILE | READ_DIR)
        for path in devices:
            _allow(ruleset, path, READ_FILE | WRITE_FILE)
        for path in writable:
            _allow(ruleset, path, files & ~EXECUTE)
        libc.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= ~READ_DIR
        rule = struct.pack("=Qi", rights, descriptor)
        libc.call("landlock_add_rule", ruleset, RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
