"""The filter, in a small machine that runs it, for both architectures. The oracle is the kernel's headers."""

import errno
import fcntl
import os
import re
import resource
import socket
import struct
import termios
from pathlib import Path

import pytest

from delta_trl.sandbox.jail import landlock, libc, namespaces, seccomp


INCLUDED = (Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu"))
NUMBERS = {
    "x86_64": ("asm/unistd_64.h", "EM_X86_64"),
    "aarch64": ("asm-generic/unistd.h", "EM_AARCH64"),
}
PID = 4321
CLONE_VM = 0x100
CLONE_THREAD = 0x10000
PR_SET_DUMPABLE = 4
RLIMIT_RTPRIO = 14
RLIMIT_RTTIME = 15
ALLOWED = [
    ("clone", CLONE_VM | CLONE_THREAD),
    ("prlimit64", 0, resource.RLIMIT_STACK, 1 << 40),
    ("prlimit64", 0, RLIMIT_RTPRIO),
    ("ioctl", 1, termios.TIOCGWINSZ),
    ("fcntl", 1, fcntl.F_GETFL),
    ("socketpair", socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC),
    ("sendto", 3, 1 << 40, 1),
    ("openat", 0, 1 << 40, os.O_RDONLY | os.O_CLOEXEC),
    ("openat", 0, 1 << 40, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ("openat", 0, 1 << 40, os.O_RDWR | os.O_TRUNC),
]
REFUSED = [
    ("kill", PID, 15),
    ("tgkill", PID, PID, 15),
    ("clone", CLONE_VM),
    ("clone3", 1 << 40),
    ("prctl", PR_SET_DUMPABLE, 1),
    ("prlimit64", PID, resource.RLIMIT_STACK),
    ("prlimit64", 0, resource.RLIMIT_CPU),
    ("prlimit64", 0, RLIMIT_RTTIME),
    ("ioctl", 1, termios.TIOCSTI),
    ("fcntl", 1, fcntl.F_SETOWN),
    ("socketpair", socket.AF_UNIX, socket.SOCK_DGRAM),
    ("socketpair", socket.AF_INET, socket.SOCK_STREAM),
    ("sendto", 3, 1 << 40, 1, 0, 1),
    ("sendto", 3, 1 << 40, 1, 0, 1 << 40),
    ("openat", 0, 1 << 40, os.O_RDONLY | os.O_TRUNC | os.O_CLOEXEC),
    ("openat", 0, 1 << 40, os.O_ACCMODE | os.O_TRUNC),
]
CODES = {"clone3": errno.ENOSYS}  # without it, libc uses clone


def header(name: str) -> str:
    """A header of the kernel."""
    for folder in INCLUDED:
        file = folder / name
        if file.exists():
            return file.read_text()
    pytest.skip(f"needs the kernel's headers: {name} (linux-libc-dev)")


def defined(name: str) -> dict[str, str]:
    """What a header of the kernel defines."""
    found = dict(re.findall(r"#define (\w+)\s+(\w+)", header(name)))
    return {name: found.get(value, value) for name, value in found.items()}


def decide(program: bytes, number: int, architecture: int, *arguments: int) -> int:
    """What a filter answers to a call."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    at = value = 0
    while True:
        code, yes, no, k = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, k)
        elif code == 0x54:
            value &= k
        elif code == 0x05:
            at += k
        elif code == 0x06:
            return k
        else:
            at += yes if {0x15: value == k, 0x35: value >= k}[code] else no


@pytest.fixture(params=NUMBERS)
def machine(request):
    """The filter of an architecture; numbers of all its system calls, and its own, as the kernel reports it."""
    unistd, name = NUMBERS[request.param]
    calls = {}
    for call, number in defined(unistd).items():
        if call.startswith("__NR_") and number.isdigit():
            calls[call.removeprefix("__NR_")] = int(number)
    of_elf = int(defined("linux/elf-em.h")[name])
    return seccomp.build(request.param), calls, 0xC0000000 | of_elf


def test_what_is_not_in_the_list_is_refused(machine):
    program, numbers, architecture = machine

    def of_calls(names) -> set[int]:
        return {numbers[name] for name in names if name in numbers}

    allowed = {number for number in range(1000) if decide(program, number, architecture) == seccomp.ALLOW}
    conditional = of_calls(["clone3", *seccomp.CONDITIONS])
    assert allowed | conditional == of_calls(seccomp.CALLS.split())
    for other in (architecture ^ 1, 0):
        assert decide(program, numbers["read"], other) == seccomp.KILL_PROCESS
    for name, number in libc.SYSCALLS.items():
        assert numbers[name] == number


def test_what_depends_on_arguments(machine):
    program, numbers, architecture = machine
    for name, *arguments in ALLOWED:
        answer = decide(program, numbers[name], architecture, *arguments)
        assert answer == seccomp.ALLOW, (name, arguments)
    for name, *arguments in REFUSED:
        answer = decide(program, numbers[name], architecture, *arguments)
        code = CODES.get(name, errno.EPERM)
        assert answer == seccomp.ERROR | code, (name, arguments)


DEFINITION = re.compile(r"#define (\w+)\s+\(?(0x[\da-f]+|\d+)(?:ULL)?(?: ?<< ?(\d+))?")


def test_constants_are_the_kernels():
    """By their names there, Landlock's without the prefix. Old headers do not have all of Landlock's."""
    names = ("sched", "mount", "prctl", "landlock", "fcntl")
    text = "".join(header(f"linux/{name}.h") for name in names)
    kernel = {}
    for name, base, shift in DEFINITION.findall(text):
        short = re.sub(r"^LANDLOCK_(ACCESS_FS_|ACCESS_)?", "", name)
        kernel[short] = int(base, 0) << int(shift or 0)
    kernel["ALL_OF_ABI_1"] = 2 * kernel["MAKE_SYM"] - 1  # the last right of the first version
    least_known = {namespaces: 14, libc: 4, landlock: 5}
    for module, least in least_known.items():
        known = [name for name in vars(module) if name in kernel]
        assert len(known) >= least
        for name in known:
            assert getattr(module, name) == kernel[name], name
    for flag in ("RDONLY", "NOSUID", "NODEV", "NOEXEC"):
        assert kernel[f"MOUNT_ATTR_{flag}"] == kernel[f"MS_{flag}"]


def test_calls_of_libc(tmp_path):
    folder = tmp_path / "Müller"
    folder.mkdir()
    assert libc.call("access", str(folder), os.R_OK) == 0
    with pytest.raises(FileNotFoundError, match="access: No such file"):
        libc.call("access", str(folder / "missing"), os.R_OK)
