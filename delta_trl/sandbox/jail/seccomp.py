"""A seccomp filter: the list of system calls that a program may make. Everything else fails with EPERM.

The filter is a classic BPF program, checked by the kernel at every call. A call is allowed (`CALLS`), some for certain
arguments only (`CONDITIONS`), or refused. No signal can be sent, not even to oneself, and no limit of processor time
can be lowered: so a SIGKILL that neither the zygote nor the promised limit has sent is the machine's doing. Sources:
seccomp(2), bpf(4), the kernel's unistd headers.
"""

import ctypes
import errno
import fcntl
import functools
import os
import platform
import resource
import socket
import struct
import termios
from typing import NamedTuple

from . import libc


# name, number on x86-64, number on aarch64; `-` where the architecture does not have the call
CALLS = """\
# descriptors that are open already
read 0 63, write 1 64, close 3 57, lseek 8 62, pread64 17 67, pwrite64 18 68, readv 19 65, writev 20 66
preadv 295 69, pwritev 296 70, dup 32 23, dup2 33 -, dup3 292 24, ftruncate 77 46, fsync 74 82, fdatasync 75 83
# files: Landlock decides which
open 2 -, openat 257 56, stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, access 21 -
faccessat 269 48, faccessat2 439 439, getdents 78 -, getdents64 217 61, getcwd 79 17, chdir 80 49, fchdir 81 50
readlink 89 -, readlinkat 267 78, statfs 137 43, fstatfs 138 44, rename 82 -, renameat 264 38, renameat2 316 276
mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35, umask 95 166
# memory
mmap 9 222, mprotect 10 226, munmap 11 215, brk 12 214, mremap 25 216, madvise 28 233, membarrier 324 283
# threads and waiting
futex 202 98, set_robust_list 273 99, get_robust_list 274 100, rseq 334 293, set_tid_address 218 96, gettid 186 178
sched_yield 24 124, sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120
sched_get_priority_max 146 125, sched_get_priority_min 147 126, getcpu 309 168, exit 60 93, exit_group 231 94
poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21
epoll_wait 232 -, epoll_pwait 281 22, eventfd2 290 19, pipe 22 -, pipe2 293 59, pause 34 -
# socketpairs, with which asyncio wakes its loop
recvfrom 45 207, shutdown 48 210, getsockname 51 204, getpeername 52 205, setsockopt 54 208, getsockopt 55 209
# time, and signals of timers
nanosleep 35 101, clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115, gettimeofday 96 169
time 201 -, times 100 153, getitimer 36 102, setitimer 38 103, alarm 37 -, rt_sigaction 13 134
rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137, rt_sigsuspend 130 133
sigaltstack 131 132, restart_syscall 219 128
# queries
getpid 39 172, getppid 110 173, getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148
getresgid 120 150, getgroups 115 158, getpgrp 111 -, getpgid 121 155, getsid 124 156, uname 63 160
getrlimit 97 163, getrusage 98 165, sysinfo 99 179, getrandom 318 278
# by their arguments, as are open and openat
clone 56 220, clone3 435 435, ioctl 16 29, fcntl 72 25, prlimit64 302 261, socketpair 53 199, sendto 44 206
"""
AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # in the order of the columns

LOAD, AND, RETURN = 0x20, 0x54, 0x06
JUMP, JUMP_EQUAL, JUMP_GREATER_EQUAL = 0x05, 0x15, 0x35
OFFSET_NUMBER, OFFSET_ARCHITECTURE, OFFSET_ARGUMENTS = 0, 4, 16
KILL_PROCESS, ERROR, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
SECCOMP_MODE_FILTER = 2

ALL_BITS = 0xFFFFFFFF
CLONE_THREAD = 0x10000
SOCK_TYPE_MASK = 0xF
ITSELF = 0  # as a process id
# All but the two beyond which the kernel kills a process by SIGKILL: the first, and the last
LIMITS = tuple(range(resource.RLIMIT_CPU + 1, resource.RLIMIT_RTTIME))
TERMINAL_QUESTIONS = (
    termios.TCGETS, termios.TIOCGWINSZ, termios.FIONREAD, termios.FIONBIO, termios.FIONCLEX, termios.FIOCLEX,
)  # fmt: skip
# Duplicate, flags, record locks, seals. Not F_SETOWN and F_SETSIG: they send signals to other processes.
FCNTL_COMMANDS = (
    fcntl.F_DUPFD, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL, fcntl.F_GETLK, fcntl.F_SETLK,
    fcntl.F_SETLKW, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GET_SEALS,
)  # fmt: skip
# A file that is only read is not emptied: Landlock checks this since its third version only.
OPENING_MASK = os.O_ACCMODE | os.O_TRUNC
OPENINGS = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_TRUNC)


class Condition(NamedTuple):
    """An argument has one of these values, in the bits of `mask`. `upper` means the upper 32 of its 64 bits."""

    argument: int
    values: tuple[int, ...]
    mask: int = ALL_BITS
    upper: bool = False


# These calls are allowed if all conditions hold.
CONDITIONS = {
    "clone": [Condition(0, (CLONE_THREAD,), mask=CLONE_THREAD)],
    "ioctl": [Condition(1, TERMINAL_QUESTIONS)],
    "fcntl": [Condition(1, FCNTL_COMMANDS)],
    "prlimit64": [Condition(0, (ITSELF,)), Condition(1, LIMITS)],
    # A datagram pair could be connected to the host's sockets, a stream pair cannot.
    "socketpair": [Condition(0, (socket.AF_UNIX,)), Condition(1, (socket.SOCK_STREAM,), mask=SOCK_TYPE_MASK)],
    # without an address
    "sendto": [Condition(4, (0,)), Condition(4, (0,), upper=True)],
    "open": [Condition(1, OPENINGS, mask=OPENING_MASK)],
    "openat": [Condition(2, OPENINGS, mask=OPENING_MASK)],
}


def call_numbers(machine: str) -> dict[str, int]:
    """The numbers of the calls that an architecture has, by their names."""
    column = list(AUDIT_ARCHITECTURES).index(machine)
    numbers = {}
    for line in CALLS.splitlines():
        if line.startswith("#"):
            continue
        for entry in line.split(", "):
            name, *columns = entry.split()
            if columns[column] != "-":
                numbers[name] = int(columns[column])
    return numbers


@functools.cache
def build(machine: str = platform.machine()) -> bytes:
    """The filter of an architecture: that of every process."""
    bodies = {number: _body(name) for name, number in call_numbers(machine).items()}
    program = [
        _instruction(LOAD, OFFSET_ARCHITECTURE),
        _instruction(JUMP_EQUAL, AUDIT_ARCHITECTURES[machine], 1, 0),
        _return(KILL_PROCESS),
        _instruction(LOAD, OFFSET_NUMBER),
        *_search(sorted(bodies.items())),
    ]
    return b"".join(program)


def _body(name: str) -> list[bytes]:
    """Instructions that decide about a call; they end in a return."""
    if name == "clone3":  # Its flags lie in memory, out of the filter's sight. Without it, libc calls clone.
        return [_refuse(errno.ENOSYS)]
    body = []
    for argument, values, mask, upper in CONDITIONS.get(name, []):
        offset = OFFSET_ARGUMENTS + 8 * argument + 4 * upper
        body += [_instruction(LOAD, offset), _instruction(AND, mask)]
        for index, value in enumerate(values):
            left = len(values) - index  # the further values, and the refusal
            body.append(_instruction(JUMP_EQUAL, value, left, 0))
        body.append(_refuse())
    return [*body, _return(ALLOW)]


def _search(bodies: list[tuple[int, list[bytes]]]) -> list[bytes]:
    """A binary search by number: the kernel runs a new filter once for each call number, so a list loads slowly."""
    if len(bodies) == 1:
        number, body = bodies[0]
        return [_instruction(JUMP_EQUAL, number, 0, len(body)), *body, _refuse()]
    half = len(bodies) // 2
    first_of_high, _ = bodies[half]
    low = _search(bodies[:half])
    high = _search(bodies[half:])
    # A conditional jump reaches 255 instructions only.
    jumps = [_instruction(JUMP_GREATER_EQUAL, first_of_high, 0, 1), _instruction(JUMP, len(low))]
    return [*jumps, *low, *high]


def _instruction(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, jump_true, jump_false, value & ALL_BITS)


def _return(value: int) -> bytes:
    return _instruction(RETURN, value)


def _refuse(code: int = errno.EPERM) -> bytes:
    return _return(ERROR | code)


def install(program: bytes) -> None:
    """Put the calling process under the filter, permanently. Needs no_new_privs."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    libc.prctl(libc.PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header)
