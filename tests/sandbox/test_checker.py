"""Outputs are compared in the trainer's process: fast, whatever a program has written, and exactly."""

import time

import pytest

from delta_trl.sandbox import Limits, Outcome, Result, parse_tests
from delta_trl.sandbox.checker import same_json, same_output

from ..corpus.verdicts import rows


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
        (same_json, b"[" * 100_000, "[" * 100_000),
        (same_output, b"1" * SIZE + b"x", "1.5"),
        (same_output, b"1 " * (SIZE // 2), "1.5 2.5\n3.5"),
        (same_output, b"x" + b"\n" * SIZE + b"x", "1.5"),
    ],
    ids=["lists", "digits", "open brackets", "digits in text", "words", "lines"],
)
def test_what_is_hostile_is_soon_refused(same, given, expected):
    assert fastest(lambda: not same(given, expected)) < SECONDS


@pytest.mark.parametrize("row", rows("outputs"))
def test_outputs(row):
    assert same_output(row["given"].encode(), row["expected"]) is row["same"]


def test_output_is_read_once():
    """Ends of cases that go back and forth would have it read as often as there are cases."""
    whole = b'{"end": %d, "status": 0}' % SIZE
    nothing = b'{"end": 0, "status": 0}'
    result = Result(Outcome.OK, stdout=b"1" * SIZE, reports=(whole, nothing) * 25)
    tests = parse_tests({"inputs": [""] * 50, "outputs": ["1.5"] * 50})
    assert tests.passes(result, range(50)) == [False]


@pytest.fixture
def result_of(sandbox):
    """The result of a function, and what reads it."""

    def call(value, expected):
        tests = parse_tests({"fn_name": "f", "inputs": [[], []], "outputs": [expected, 0]})
        job = tests.job(f"def f(): return {value}", range(1))
        return tests, sandbox.execute([job], Limits())

    return call


@pytest.mark.parametrize("row", rows("values"))
def test_values(result_of, row):
    tests, result = result_of(row["value"], row["expected"])
    assert tests.passes_alone(result, 0) is row["same"]


@pytest.mark.parametrize("value", ["{1}", "{(1, 2): 1}"])
def test_what_json_does_not_have_is_an_exception(result_of, value):
    _, result = result_of(value, 1)
    assert result.outcome is Outcome.EXCEPTION
    assert b"TypeError" in result.stderr
