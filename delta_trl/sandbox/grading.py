"""Grades a program against tests. The host holds the expected outputs; the jail sees programs and inputs."""

import ast
import json
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from . import codec
from .checker import same_output, same_value
from .limits import Limits, Outcome, Result
from .remote import RemoteSandbox
from .sandbox import Sandbox


MAX_TIMEOUTS = 2  # of one program; then its other tests count as failed
REPORT_BYTES = 500  # the report on a case's end is shorter
METHOD = "Solution()."  # prefix of methods in LeetCode's data sets
MAX_LEVELS = 100  # of nesting in a call's input or output
JSON_SCALARS = (type(None), bool, int, float, str)


@dataclass(frozen=True)
class Grade:
    """
    The result of grading a program.

    Args:
        passed (`int`): How many of the tests that ran have passed.
        total (`int`): How many tests there are.
        verdict (`str`):
            "passed", or the first failure: "wrong answer", "exception", "timeout", "memory", "output limit", "killed".
            "sandbox error" if the program could not be graded.
        failed_test (`int`, *optional*): Number of the first test that failed, from 1.
        share (`float`, *optional*, defaults to `0.0`): Partial credit: of the tests that doing nothing would fail.
    """

    passed: int
    total: int
    verdict: str
    failed_test: int | None = None
    share: float = 0.0

    @property
    def graded(self) -> bool:
        return self.verdict != Outcome.SANDBOX_ERROR.value

    def __str__(self) -> str:
        if self.failed_test is None:
            return f"passed {self.passed} of {self.total}" if self.graded else self.verdict
        return f"{self.verdict} on test {self.failed_test} of {self.total}"


class TestsError(ValueError):
    """The tests themselves cannot be used."""

    __test__ = False  # pytest collects what is called Test...


@dataclass(frozen=True)
class StdinTests:
    """Programs that read standard input: `{"inputs": ["…"], "outputs": ["…"]}`."""

    inputs: list[str]
    outputs: list[str]

    @property
    def given(self) -> frozenset[int]:
        return frozenset(case for case, output in enumerate(self.outputs) if not output.strip())

    def job(self, code: str, cases: range) -> dict:
        return {"kind": "stdin", "code": code, "inputs": [self.inputs[case] for case in cases]}

    def single(self, result: Result, case: int) -> str:
        """The verdict on a case that ran alone in a process."""
        if result.outcome is not Outcome.OK:
            return result.outcome.value
        return "passed" if same_output(result.stdout, self.outputs[case]) else "wrong answer"

    def batch(self, result: Result, cases: range) -> list[bool]:
        """For each case that a process of several cases has finished, whether it passed."""
        passed, start = [], 0
        for case, line in zip(cases, result.reports, strict=False):
            report = load_report(line[:REPORT_BYTES])
            end = report.get("end") if isinstance(report, dict) else None
            if not isinstance(end, int) or end < start:
                break
            passed.append(report.get("status") == 0 and same_output(result.stdout[start:end], self.outputs[case]))
            start = end
        return passed


@dataclass(frozen=True)
class CallTests:
    """Functions: `{"fn_name": "f", "inputs": [[argument, …], …], "outputs": [value, …]}`."""

    function: str
    inputs: list[list]
    outputs: list

    @property
    def given(self) -> frozenset[int]:
        return frozenset(case for case, output in enumerate(self.outputs) if output is None)

    def job(self, code: str, cases: range) -> dict:
        arguments = [codec.encode(self.inputs[case]) for case in cases]
        return {"kind": "calls", "code": code, "function": self.function, "inputs": arguments}

    def single(self, result: Result, case: int) -> str:
        if result.outcome is not Outcome.OK:
            return result.outcome.value
        return "passed" if result.reports and self._same(result.reports[0], case) else "wrong answer"

    def batch(self, result: Result, cases: range) -> list[bool]:
        return [self._same(line, case) for case, line in zip(cases, result.reports, strict=False)]

    def _same(self, line: bytes, case: int) -> bool:
        expected = self.outputs[case]
        try:
            if len(line) > REPORT_BYTES and not _as_few_parts(line, json.dumps(codec.encode(expected)).encode()):
                return False
            return same_value(json.loads(line, parse_int=codec.short_integer), expected)
        except (ValueError, RecursionError):
            return False


def _as_few_parts(line: bytes, wanted: bytes) -> bool:
    """
    Whether an encoding is small enough to be that of an equal value: reading millions of lists takes too long.

    An equal value has the same strings and containers, but integers and keys may be floats: lists of two.
    """
    marks = (b"[", b",", b"{")
    parts = sum(map(wanted.count, marks))
    return all(line.count(mark) <= 2 * parts + 1 for mark in marks)


@dataclass(frozen=True)
class Suite:
    """
    Tests that are code, run in a process of their own beside the program's. Each function is a test, and so is each
    text without functions to run.

    Args:
        setup (`str`): Code to run first.
        units (`tuple[str, ...]`): The texts; they can use the program's names.
        entry_point (`str`, *optional*): What `check` is called with: `f`, or `Solution().f`.
        total (`int`, *optional*): How many tests there are, see `check_tests`.
        given (`frozenset[int]`, *optional*): Numbers of the tests that pass without a program, see `check_tests`.
    """

    setup: str
    units: tuple[str, ...]
    entry_point: str | None = None
    total: int | None = None
    given: frozenset[int] = frozenset()

    def run(
        self, sandbox: Sandbox | RemoteSandbox, code: str | None, limits: Limits, stop_at_failure: bool
    ) -> tuple[dict[int, str], int]:
        """
        The verdicts on a program, and how many tests there are, of one execution: the tests in one process, the
        program in another. If `code` is `None`, there is no program: its names can be called, but give nothing.
        """
        if not sandbox.is_local:
            raise TestsError("Tests that are code need a process beside the program's: run them in a local Sandbox.")
        job: dict = {"kind": "suite", "setup": self.setup, "units": self.units, "entry_point": self.entry_point}
        job |= {"stop_at_failure": stop_at_failure, "without_program": code is None}
        jobs = [job] if code is None else [job, {"kind": "program", "code": code}]
        result = sandbox.execute(jobs, limits)
        report = load_report(result.reports[0]) if result.reports else None
        if isinstance(report, dict) and "unusable" in report:
            raise TestsError(f"The tests cannot be run: {report['unusable']}")
        total = report["total"] if isinstance(report, dict) else self.total or len(self.units)
        if result.outcome is Outcome.SANDBOX_ERROR:
            return {0: result.outcome.value}, total
        passed = report["passed"] if isinstance(report, dict) else []
        named = {True: "passed", "AssertionError": "wrong answer", "MemoryError": "memory"}
        verdicts = {number: named.get(one, "exception") for number, one in enumerate(passed)}
        if result.outcome is not Outcome.OK:
            verdicts[min(len(passed), total - 1)] = result.outcome.value
        elif len(passed) < total and set(verdicts.values()) <= {"passed"}:
            verdicts[len(passed)] = "exception"  # the tests ended before this one ran
        return verdicts, total


def parse_json(text: str) -> Any:
    """JSON with integers of any length: Python's own reader stops at 4300 digits."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 4000 else int(Decimal(digits)))


def load_report(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


Tests = StdinTests | CallTests | Suite
"""What `parse_tests` gives."""


def parse_tests(tests: dict | str) -> Tests:
    """
    Tests from a data set's row.

    Args:
        tests (`dict | str`): A dict, or its JSON, in one of the formats of docs/sandbox.md.

    Raises:
        TestsError: If they are in none of these formats, or there are none.
    """
    try:
        return _parse_tests(tests)
    except (RecursionError, MemoryError) as error:  # from Python's parser
        raise TestsError("The tests are nested too deeply.") from error
    except TestsError:
        raise
    except (TypeError, ValueError) as error:  # integers too long for a text, arrays where lists are expected
        raise TestsError(f"The tests cannot be read: {error}") from error


def _parse_tests(tests: dict | str) -> Tests:
    if isinstance(tests, str):
        try:
            tests = parse_json(tests)
        except ValueError as error:
            raise TestsError(f"The tests are not JSON: {error}") from error
    if not isinstance(tests, dict):
        raise TestsError(f"Tests are a dict or its JSON, got {type(tests).__name__}.")
    if tests.get("test") or tests.get("test_list"):
        if tests.get("outputs"):
            raise TestsError("Tests are code ('test', 'test_list'), or 'inputs' and 'outputs'; got both.")
        return _parse_suite(tests)
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
        raise TestsError(
            "Tests need as many 'outputs' as 'inputs' and at least one, or 'test' with 'entry_point', or 'test_list'; "
            f"got the keys {sorted(map(str, tests))}."
        )
    if tests.get("fn_name"):
        return _parse_calls(_function("fn_name", tests["fn_name"]).removeprefix(METHOD), inputs, outputs)
    texts = StdinTests([_text(item) for item in inputs], [_text(item) for item in outputs])
    if len(texts.given) == len(inputs):
        raise TestsError("All outputs are blank: a program that does nothing would pass.")
    return texts


def _parse_suite(tests: dict) -> Suite:
    setup = [*(tests.get("test_imports") or []), tests.get("test_setup_code") or ""]
    units = [*(tests.get("test_list") or []), *filter(None, [tests.get("test")])]
    lists = [tests.get(key) or [] for key in ("test_list", "test_imports")]
    if not all(isinstance(one, list) for one in lists) or not all(isinstance(text, str) for text in (*setup, *units)):
        raise TestsError(
            "'test' and 'test_setup_code' are texts, and 'test_list' and 'test_imports' are lists of texts."
        )
    for unit in units:
        try:
            ast.parse(unit)
        except (SyntaxError, ValueError) as error:
            raise TestsError(f"A test is not Python: {error}") from error
    entry_point = _function("entry_point", tests["entry_point"]) if tests.get("entry_point") else None
    return Suite("\n".join(setup), tuple(units), entry_point)


def _function(key: str, name: object) -> str:
    if not isinstance(name, str) or not name.removeprefix(METHOD).isidentifier():
        raise TestsError(f"'{key}' is the name of a function, or '{METHOD}' and a method's name; got {name!r:.200}.")
    return name


def _text(item: object) -> str:
    if isinstance(item, list):
        return "\n".join(map(_text, item))
    if not isinstance(item, (str, int, float)):
        raise TestsError(f"An input or output is a text, got {item!r:.200}.")
    return str(item)


def _check_depth(value: Any, levels: int = MAX_LEVELS) -> None:
    if not levels:
        raise TestsError(f"A call's input or output is nested more than {MAX_LEVELS} levels deep.")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for part in parts:
        _check_depth(part, levels - 1)


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    return all(map(_is_json, value)) if isinstance(value, (list, tuple)) else isinstance(value, JSON_SCALARS)


def _parse_calls(name: str, inputs: list, outputs: list) -> CallTests:
    arguments, expected = [], []
    for given, wanted in zip(inputs, outputs, strict=True):
        if isinstance(given, str):  # LeetCode's: one JSON value per line, and the output is JSON as well
            try:
                given = [parse_json(line) for line in given.split("\n") if line.strip()]
                wanted = parse_json(wanted) if isinstance(wanted, str) else wanted
            except ValueError as error:
                raise TestsError(f"A call's input or output is not JSON: {error}") from error
        if not isinstance(given, list):
            raise TestsError(f"A call's input is a list of arguments or JSON lines, got {type(given).__name__}.")
        _check_depth((given, wanted))
        codec.encode(given)  # raises for what cannot be given to a program
        if not _is_json(wanted):
            raise TestsError(f"A call's output is a JSON value, got {wanted!r:.200}.")
        arguments.append(given)
        expected.append(wanted)
    calls = CallTests(name, arguments, expected)
    if len(calls.given) == len(expected):
        raise TestsError("All outputs are null: a program that does nothing would pass.")
    return calls


CHECKED: dict[Suite, tuple[int, frozenset[int]]] = {}  # how many tests there are, and which pass without a program


def check_tests(sandbox: Sandbox | RemoteSandbox, tests: Tests, limits: Limits) -> Tests:
    """
    Run tests that are code without a program, once in each process of the trainer. Those that pass ask nothing.

    Args:
        sandbox (`Sandbox | RemoteSandbox`): Where to run them.
        tests (`Tests`): From `parse_tests`, which has checked the other two kinds.
        limits (`Limits`): As for `grade`.

    Returns:
        `Tests`: For `grade`.

    Raises:
        TestsError: If all pass, so that every program would, or if they cannot be run, as on a server.
    """
    if not isinstance(tests, Suite) or tests.total:
        return tests
    if tests not in CHECKED:
        for _ in range(2):  # on a busy machine, tests that ask nothing may run out of time, too
            verdicts, total = tests.run(sandbox, None, limits, stop_at_failure=False)
            if Outcome.TIMEOUT.value not in verdicts.values():
                break
        if Outcome.SANDBOX_ERROR.value in verdicts.values():
            raise TestsError("The sandbox failed, so it is not known whether they pass without a program.")
        CHECKED[tests] = total, frozenset(number for number, verdict in verdicts.items() if verdict == "passed")
    total, given = CHECKED[tests]
    if len(given) == total:
        raise TestsError("They pass without a program, so every program would pass them.")
    return replace(tests, total=total, given=given)


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
        TestsError: If the tests are code that cannot be run, such as an import of what is not installed, or that
            needs a local sandbox.
    """
    limits = limits or sandbox.limits
    if isinstance(tests, Suite):
        tests = check_tests(sandbox, tests, limits)
        assert isinstance(tests, Suite)
        verdicts, total = tests.run(sandbox, code, limits, stop_at_failure)
        return summarize(verdicts, total, tests.given)
    return _grade_cases(sandbox, code, tests, limits, stop_at_failure)


def _grade_cases(
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
    everything = range(len(tests.inputs))
    verdicts: dict[int, str] = {}
    in_batch: dict[int, bool] = {}
    for case in everything:
        failures = [verdict for verdict in verdicts.values() if verdict != "passed"]
        if failures and (stop_at_failure or failures.count("timeout") >= MAX_TIMEOUTS or "sandbox error" in failures):
            break
        if case == 1 and together and sandbox.is_local:
            result = sandbox.execute([tests.job(code, everything)], limits)
            in_batch = dict(enumerate(tests.batch(result, everything)))
        if in_batch.get(case):
            verdicts[case] = "passed"
        else:
            result = sandbox.execute([tests.job(code, range(case, case + 1))], limits)
            verdicts[case] = tests.single(result, case)
        if any(verdicts[other] == "passed" and not in_batch.get(other, True) for other in (0, case)):
            return _grade_cases(sandbox, code, tests, limits, stop_at_failure, together=False)
    return summarize(verdicts, len(everything), tests.given)


def summarize(verdicts: dict[int, str], total: int, given: frozenset[int]) -> Grade:
    """The grade of a program. A test that is `given`, passed by doing nothing, earns nothing, but failing it costs."""
    if Outcome.SANDBOX_ERROR.value in verdicts.values():
        return Grade(0, total, Outcome.SANDBOX_ERROR.value)
    passed = {case for case, verdict in verdicts.items() if verdict == "passed"}
    failed = verdicts.keys() - passed
    share = max(0, len(passed - given) - len(failed & given)) / (total - len(given))
    if not failed:
        return Grade(len(passed), total, "passed", share=share)
    return Grade(len(passed), total, verdicts[min(failed)], min(failed) + 1, share)
