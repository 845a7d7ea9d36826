"""The tests of a data set's row: their formats, and whether a program's output passes them."""

import json
from dataclasses import dataclass
from typing import Any

from .checker import same_json, same_output, same_value
from .limits import Result
from .own_checker import CheckerError, OwnChecker, find_checker


REPORT_BYTES = 500  # the report on a case's end is shorter
METHOD = "Solution()."  # prefix of methods in LeetCode's data sets


class TestsError(ValueError):
    """The tests themselves cannot be used."""

    __test__ = False  # pytest collects what is called Test...


@dataclass(frozen=True)
class StdinTests:
    """
    Programs that read standard input: `{"inputs": ["…"], "outputs": ["…"]}`. With `"checker": "my_module.accepts"`,
    this function says whether an output is right.
    """

    inputs: list[str]
    outputs: list[str]
    checker: OwnChecker | None = None

    def job(self, code: str, cases: range) -> dict:
        return {"kind": "stdin", "code": code, "inputs": [self.inputs[case] for case in cases]}

    def passes_alone(self, result: Result, case: int) -> bool:
        """Whether the output of a process of one case, which ended well, is right."""
        return self.is_right(result.stdout, case)

    def is_right(self, output: bytes, case: int) -> bool:
        if self.checker:
            return self.checker.accepts(self.inputs[case], output, self.outputs[case])
        return same_output(output, self.outputs[case])

    def passes(self, result: Result, cases: range) -> list[bool]:
        """For each case that a process of several cases has finished, whether its output is right."""
        passed = []
        start = 0
        for case, line in zip(cases, result.reports, strict=False):
            report = load_report(line[:REPORT_BYTES])
            end = report.get("end")
            if not isinstance(end, int) or end < start:
                break
            is_right = self.is_right(result.stdout[start:end], case)
            passed.append(is_right and report.get("status") == 0)
            start = end
        return passed


@dataclass(frozen=True)
class CallTests:
    """
    Functions: `{"fn_name": "f", "inputs": [[argument, …], …], "outputs": [value, …]}`. Some data sets write each value
    in a list. Where all outputs are lists of one, both the list and its value are right.
    """

    function: str
    inputs: list[list]
    outputs: list

    def job(self, code: str, cases: range) -> dict:
        inputs = [self.inputs[case] for case in cases]
        return {"kind": "calls", "code": code, "function": self.function, "inputs": inputs}

    def passes_alone(self, result: Result, case: int) -> bool:
        return self.passes(result, range(case, case + 1)) == [True]

    def passes(self, result: Result, cases: range) -> list[bool]:
        """For each case that a process of several cases has finished, whether its value is right."""
        values = without_lists(self.outputs)
        passed = []
        for case, line in zip(cases, result.reports, strict=False):
            passed.append(same_json(line, self.outputs[case]) or same_json(line, values[case]))
        return passed


@dataclass(frozen=True)
class Suite:
    """
    Tests that are code, run in a process of their own beside the program's. Each function is a test, and so is each
    text without functions to run.

    Args:
        setup (`str`): Code to run first.
        units (`tuple[str, ...]`): The texts; they can use the program's names.
        entry_point (`str`, *optional*): What `check` is called with: `f`, or `Solution().f`.
    """

    setup: str
    units: tuple[str, ...]
    entry_point: str | None = None


Tests = StdinTests | CallTests | Suite
"""The result of `parse_tests`."""


def without_lists(outputs: list) -> list:
    """The values of outputs that are all lists of one; else the outputs."""
    are_lists = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    return [output[0] for output in outputs] if are_lists else outputs


def load_report(line: bytes) -> dict:
    """What a process reported; nothing if it is no JSON, as if the process ended before."""
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}


def parse_tests(tests: dict | str) -> Tests:
    """
    Tests from a data set's row.

    Args:
        tests (`dict | str`): A dict, or its JSON, in one of the formats of docs/sandbox.md.

    Raises:
        TestsError: If they are in none of these formats, or there are none.
        CheckerError: If they name a checker that is none, or does not accept an expected output.
    """
    try:
        return _parse(json.loads(tests) if isinstance(tests, str) else tests)
    except (TestsError, CheckerError):
        raise
    except (TypeError, ValueError, AttributeError, RecursionError) as error:  # such as arrays instead of lists
        raise TestsError(f"The tests cannot be read: {error}") from error


def _parse(tests: dict) -> Tests:
    path = tests.get("checker")
    if path and (not isinstance(path, str) or any(tests.get(key) for key in ("test", "test_list", "fn_name"))):
        raise TestsError(f"'checker' is a function's dotted path, and for tests of output only; got {path!r:.200}.")
    if tests.get("test") or tests.get("test_list"):
        if tests.get("outputs"):
            raise TestsError("Tests are code ('test', 'test_list'), or 'inputs' and 'outputs'; got both.")
        setup = [*_list(tests, "test_imports"), tests.get("test_setup_code") or ""]
        units = _list(tests, "test_list")
        if tests.get("test"):
            units = [*units, tests["test"]]
        name = _function(tests["entry_point"]) if tests.get("entry_point") else None
        return Suite("\n".join(setup), tuple(map(str, units)), name)
    inputs = _list(tests, "inputs")
    outputs = _list(tests, "outputs")
    if len(inputs) != len(outputs) or not inputs:
        raise TestsError(
            "Tests need as many 'outputs' as 'inputs' and at least one, or 'test' with 'entry_point', or 'test_list'; "
            f"got the keys {sorted(map(str, tests))}."
        )
    cases: StdinTests | CallTests
    if tests.get("fn_name"):
        name = _function(tests["fn_name"]).removeprefix(METHOD)
        calls = [_call(call_input, wanted) for call_input, wanted in zip(inputs, outputs, strict=True)]
        cases = CallTests(name, [arguments for arguments, _ in calls], [value for _, value in calls])
    else:
        checker = find_checker(path) if path else None
        texts = [_text(stdin) for stdin in inputs]
        cases = StdinTests(texts, [_text(output).strip() for output in outputs], checker)
    if all(value in (None, "") for value in without_lists(cases.outputs)):
        raise TestsError("All outputs are empty: a program that does nothing would pass.")
    if isinstance(cases, StdinTests) and cases.checker:
        for stdin, expected in zip(cases.inputs, cases.outputs, strict=True):
            cases.checker.check_itself(stdin, expected)
    return cases


def _list(tests: dict, key: str) -> list:
    value = tests.get(key) or []
    if not isinstance(value, list):
        raise TestsError(f"'{key}' is a list, got {value!r:.200}.")
    return value


def _function(name: object) -> str:
    if not isinstance(name, str) or not name.removeprefix(METHOD).isidentifier():
        raise TestsError(
            f"'fn_name' and 'entry_point' must be a function's name, or '{METHOD}' and a method's; got {name!r:.200}."
        )
    return name


def _text(item: object) -> str:
    if isinstance(item, list):
        return "\n".join(map(_text, item))
    if not isinstance(item, (str, int, float)):
        raise TestsError(f"An input or output is a text, got {item!r:.200}.")
    return str(item)


def _call(call_input: Any, wanted: Any) -> tuple[list, Any]:
    """The arguments of a call and its value, as JSON has them. LeetCode's are texts: one JSON value per line."""
    if isinstance(call_input, str):
        call_input = [json.loads(line) for line in call_input.split("\n") if line.strip()]
        wanted = json.loads(wanted) if isinstance(wanted, str) else wanted
    arguments, value = json.loads(json.dumps([call_input, wanted]))
    if not isinstance(arguments, list):
        raise TestsError(f"A call's input is a list of arguments or JSON lines, got {call_input!r:.200}.")
    same_value(value, value)  # raises RecursionError if it is nested too deeply to be compared
    return arguments, value
