"""Grades a program against tests. The host holds the expected outputs; the jail sees programs and inputs."""

import re
from dataclasses import dataclass

from .calls import FILE_NAME
from .limits import Limits, Outcome
from .local import Sandbox
from .remote import RemoteSandbox
from .unit_tests import CallTests, StdinTests, Suite, Tests, TestsError, load_report


SYNTAX_ERROR = re.compile(r"\w+Error in line \d+")  # a verdict
NOT_COMPILED = re.compile(  # the end of a traceback
    rf'File "{FILE_NAME}", line (?P<line>\d+)\n(?:    .*\n)*(?P<name>(?:Syntax|Indentation|Tab)Error)\b'
)
MAX_TIMEOUTS = 2  # of one program; then its other tests count as failed
VERDICTS = {
    True: "passed",
    "AssertionError": "wrong answer",
    "MemoryError": "memory",
    "NotForProgramsError": "tests that hand over their own objects",
}  # of other exceptions "exception"


@dataclass(frozen=True)
class Grade:
    """
    The result of grading a program.

    Args:
        passed (`int`): How many of the tests that ran have passed.
        total (`int`): How many tests there are.
        verdict (`str`):
            "passed", or the first failure: "wrong answer", "exception", "SyntaxError in line 3", "timeout", "memory",
            "output limit", "killed". "sandbox error" if the program could not be graded.
        failed_test (`int`, *optional*): Number of the first test that failed, from 1.
    """

    passed: int
    total: int
    verdict: str
    failed_test: int | None = None

    @property
    def graded(self) -> bool:
        return self.verdict != Outcome.SANDBOX_ERROR

    def __str__(self) -> str:
        if self.failed_test is None:
            return f"passed {self.passed} of {self.total}" if self.graded else self.verdict
        return f"{self.verdict} on test {self.failed_test} of {self.total}"


def grade(
    sandbox: Sandbox | RemoteSandbox,
    code: str,
    tests: Tests,
    limits: Limits | None = None,
    stop_at_failure: bool = True,
) -> Grade:
    """
    Grade a program.

    Args:
        sandbox (`Sandbox | RemoteSandbox`): Where to run it.
        code (`str`): Its text.
        tests (`Tests`): From `parse_tests`.
        limits (`Limits`, *optional*): For each test; by default the sandbox's.
        stop_at_failure (`bool`, *optional*, defaults to `True`): Run no further tests after the first that fails.

    Raises:
        TestsError: If the tests are code that cannot be used, or that would run on a server.
    """
    limits = limits or sandbox.limits
    if isinstance(tests, Suite):
        return grade_suite(sandbox, code, tests, limits, stop_at_failure)
    return grade_cases(sandbox, code, tests, limits, stop_at_failure)


def summarize(verdicts: list[str], total: int) -> Grade:
    """The grade of a program, from the verdicts of the tests that ran."""
    if Outcome.SANDBOX_ERROR in verdicts:
        return Grade(0, total, Outcome.SANDBOX_ERROR)
    failed = [test for test, verdict in enumerate(verdicts) if verdict != "passed"]
    passed = len(verdicts) - len(failed)
    if not failed:
        return Grade(passed, total, "passed")
    first = failed[0]
    return Grade(passed, total, verdicts[first], failed_test=first + 1)


def grade_cases(
    sandbox: Sandbox | RemoteSandbox,
    code: str,
    tests: StdinTests | CallTests,
    limits: Limits,
    stop_at_failure: bool,
    together: bool = True,
) -> Grade:
    """
    Run the first case by itself, and then all `together` in one process (a batch), or each in its own.

    All cases of a batch together have the time limit of one, since only the program knows which one it is at. Cases
    that it does not reach run alone. So do cases that fail in the batch, because an earlier case may have left
    something behind. If such a case passes alone, the program answers differently there, by chance or on purpose. Then
    no answer of the batch counts: taking some answers from the batch and others from single runs would give it two
    guesses for every case.
    """
    cases = range(len(tests.inputs))
    verdicts: list[str] = []
    in_batch: dict[int, bool] = {}  # whether cases pass there, as far as it came
    for case in cases:
        failures = [verdict for verdict in verdicts if verdict != "passed"]
        if failures and (
            stop_at_failure or failures.count(Outcome.TIMEOUT) >= MAX_TIMEOUTS or Outcome.SANDBOX_ERROR in failures
        ):
            break
        if case == 1 and together and sandbox.is_local:
            result = sandbox.execute([tests.job(code, cases)], limits)
            in_batch = dict(enumerate(tests.passes(result, cases)))
        if in_batch.get(case):
            verdicts.append("passed")
        else:
            result = sandbox.execute([tests.job(code, range(case, case + 1))], limits)
            verdict = syntax_error(result.stderr) or str(result.outcome)
            if result.outcome is Outcome.OK:
                verdict = "passed" if tests.passes_alone(result, case) else "wrong answer"
            verdicts.append(verdict)
        for other in (0, case):
            if verdicts[other] == "passed" and in_batch.get(other) is False:  # another answer alone
                return grade_cases(sandbox, code, tests, limits, stop_at_failure, together=False)
    return summarize(verdicts, len(cases))


def is_syntax_error(verdict: str) -> bool:
    return SYNTAX_ERROR.fullmatch(verdict) is not None


def syntax_error(stderr: bytes) -> str | None:
    """
    The verdict on a program that cannot be compiled; `None` for others. A program can forge it, and gains no reward.
    """
    error = NOT_COMPILED.search(stderr.decode("utf-8", "replace"))
    return f"{error['name']} in line {error['line']}" if error else None


def grade_suite(
    sandbox: Sandbox | RemoteSandbox, code: str, suite: Suite, limits: Limits, stop_at_failure: bool
) -> Grade:
    """One execution: the tests in one process, the program in another."""
    if not sandbox.is_local:
        raise TestsError("Tests that are code need a process beside the program's: run them in a local Sandbox.")
    tests = {"kind": "suite", "stop_at_failure": stop_at_failure, **vars(suite)}
    result = sandbox.execute([tests, {"kind": "program", "code": code}], limits)
    report = load_report(b"".join(result.reports))
    if "unusable" in report:
        raise TestsError(f"The tests cannot be used: {report['unusable']}")
    total = report.get("total", len(suite.units))
    verdicts = []
    for name in report.get("passed", []):
        is_verdict = name is not True and is_syntax_error(name)
        verdicts.append(name if is_verdict else VERDICTS.get(name, "exception"))
    if result.outcome is not Outcome.OK:
        verdicts = [*verdicts[: total - 1], result.outcome]
    elif len(verdicts) < total and set(verdicts) <= {"passed"}:
        verdicts.append("exception")  # the tests ended before this one ran
    return summarize(verdicts, total)
