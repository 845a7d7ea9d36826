"""Isolated execution of model-written Python programs."""

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
