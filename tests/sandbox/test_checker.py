"""Outputs are compared in the trainer's process: fast, whatever a program has written, and exactly."""

import json
import time

import pytest

from delta_trl.sandbox import Limits, Outcome, Result, parse_tests
from delta_trl.sandbox.checker import same_json, same_output


SIZE = 4 << 20  # bytes that a program has written
SECONDS = 0.5  # some times what the slowest takes


def fastest(holds) -> float:
    """Seconds of this thread's that a call takes, which must be true: the least of three if the machine is busy."""
    times: list[float] = []
    while len(times) < 3 and min(times, default=SECONDS) >= SECONDS:
        started = time.thread_time()
        assert holds()
        times.append(time.thread_time() - started)
    return min(times)


@pytest.mark.parametrize(
    ("same", "given", "expected"),
    [
        (same_json, b"[" + b"[]," * (SIZE // 3) + b"[]]", 1),
        (same_json, b"1" * SIZE, 1),
        (same_output, b"1" * SIZE + b"x", "1.5"),
        (same_output, b"1 " * (SIZE // 2), "1.5 2.5\n3.5"),
        (same_output, b"x" + b"\n" * SIZE + b"x", "1.5"),
    ],
    ids=["lists", "digits", "digits in text", "words", "lines"],
)
def test_what_is_hostile_is_soon_refused(same, given, expected):
    assert fastest(lambda: not same(given, expected)) < SECONDS


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [
        ("1  2\t3 \n", "1 2 3", True),
        ("1.0 2", "1 2", True),
        ("9007199254740992.0", "9007199254740993", False),
        ("011", "11", False),
        ("0.0", "1e-10", False),
        ("0.0000001", "0.0", True),
        ("1 2 3", "1 2", False),
        ("1", "1 2", False),
        ("a  b", "a b", False),
        ("0.3333333 1", "0.33333333 1", True),
        ("1\n2", "1 2", False),
        ("1.00000001e-07", "1e-07", True),
        ("The total is 12345679.", "The total is 12345678.", False),
        ("1000", "1e3", False),
        ("1e+99999999999999999999", "7", False),
        ("1e-99999999999999999999", "0", False),
        ("1e+99999999999999999999", "0.5", False),
    ],
)
def test_outputs(given, expected, same):
    assert same_output(given.encode(), expected) is same


def test_output_is_read_once():
    """Ends of cases that go back and forth would have it read as often as there are cases."""
    reports = tuple(json.dumps({"end": end, "status": 0}).encode() for end in [SIZE, 0] * 25)
    tests = parse_tests({"inputs": [""] * 50, "outputs": ["1.5"] * 50})
    assert tests.passes(Result(Outcome.OK, stdout=b"1" * SIZE, reports=reports), range(50)) == [False]


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        ("(1, [2.0])", [1, [2]], True),
        ("2**53 + 1", float(2**53), False),
        ("0.1 + 0.2", 0.3, True),
        ("nan", float("nan"), True),
        ("inf", 1.5, False),
        ("True", 1, False),
        ("1", True, False),
        ("['[{,' * 1000]", ["[{," * 1000], True),
        ("{2: 'a', 2.5: 'b', None: 0, True: 3}", {"2": "a", "2.5": "b", "null": 0, "true": 3}, True),
        ("{1: 1, '1': 1}", {"1": 1, "2": 1}, False),
    ],
)
def test_values(sandbox, value, expected, same):
    tests = parse_tests({"fn_name": "f", "inputs": [[], []], "outputs": [expected, 0]})
    assert tests.passes_alone(sandbox.execute([tests.job(f"def f(): return {value}", range(1))], Limits()), 0) is same


@pytest.mark.parametrize("value", ["{1}", "{(1, 2): 1}"])
def test_what_json_does_not_have_is_an_exception(sandbox, value):
    tests = parse_tests({"fn_name": "f", "inputs": [[]], "outputs": [1]})
    result = sandbox.execute([tests.job(f"def f(): return {value}", range(1))], Limits())
    assert (result.outcome, b"TypeError" in result.stderr) == (Outcome.EXCEPTION, True)
