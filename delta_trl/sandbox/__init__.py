"""
Runs Python programs that a model has written, and grades them against unit tests. A program runs in a process of its
own that the Linux kernel confines.

Covered, in tier A (namespaces, Landlock, seccomp) and tier B (Landlock, seccomp, resource limits):
- expected outputs never enter the process of the program; what it reports about itself decides nothing;
- files: reading is limited to Python's and the system's libraries, writing to a private directory (tier A) or nothing;
- the environment, the network, other processes, System V IPC, privileges: out of reach;
- wall-clock time, processor time, address space, output, threads, open files: limited; nothing outlives an execution.

Not covered: bugs of the kernel; side channels through shared hardware; in tier B the existence and size of files
(`stat`), and, for other users than root, a thread limit that leaves out the user's other threads. Without a tier the
sandbox refuses to run. Formats, policy and tiers: docs/sandbox.md.

Read on the host `unit_tests` (formats), `grading`, `local`, `retries`, `worker` (one process); in the worker
`jail/zygote`, `jail/confinement`, `jail/child` (one execution), and there `jail/program` for standard input
and calls, or `jail/suite` for tests that are code.
"""

from .grading import Grade, grade
from .limits import Limits, Outcome, Result
from .local import Sandbox, SandboxUnavailableError
from .remote import RemoteSandbox
from .unit_tests import Tests, TestsError, parse_tests


__all__ = [
    "Grade",
    "Limits",
    "Outcome",
    "RemoteSandbox",
    "Result",
    "Sandbox",
    "SandboxUnavailableError",
    "Tests",
    "TestsError",
    "grade",
    "parse_tests",
]
