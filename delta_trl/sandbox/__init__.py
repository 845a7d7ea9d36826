"""Isolated execution of model-written Python programs, and grading them against unit tests.

Covered, in tier A (namespaces, Landlock, seccomp) and tier B (Landlock, seccomp, resource limits):
- expected outputs never enter the process of the program; what it says about itself decides nothing;
- files: reading is limited to the Python library and the system's, writing to a private directory (tier A) or nothing;
- the environment, the network, other processes, System V IPC, privileges: out of reach;
- clock, processor time, address space, output, threads, open files: limited; nothing outlives an execution.

Not covered: faults of the kernel; side channels through shared hardware; in tier B the existence and size of files
(`stat`), and, for other users than root, a thread limit that leaves out the user's other threads. Without a tier the
sandbox refuses to run, unless told `allow_unsafe`. Formats, policy and tiers: docs/sandbox.md.
"""

from .grading import Grade, TestsError, grade, parse_tests
from .limits import Limits, Outcome, Result
from .remote import RemoteSandbox
from .sandbox import Sandbox, SandboxUnavailableError


__all__ = [
    "Grade",
    "Limits",
    "Outcome",
    "RemoteSandbox",
    "Result",
    "Sandbox",
    "SandboxUnavailableError",
    "TestsError",
    "grade",
    "parse_tests",
]
