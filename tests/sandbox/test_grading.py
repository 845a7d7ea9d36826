"""Tests that cannot be used, and tests that are code."""

import itertools
import json

import numpy as np
import pytest

from delta_trl.rewards import code_reward
from delta_trl.sandbox import Limits, TestsError, grade, parse_tests

from ..corpus.programs import ATTACKS
from ..corpus.verdicts import rows


@pytest.mark.parametrize(
    "tests",
    [
        "[" * 100_000,
        json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": ["LONG"]}).replace('"LONG"', "1" * 5000),
        {"fn_name": "f", "inputs": [[1]], "outputs": [json.loads("[" * 500 + "]" * 500)]},
        {"fn_name": "f", "inputs": [[np.array([1])]], "outputs": [1]},
        *rows("unreadable"),
    ],
)
def test_tests_that_cannot_be_read_are_no_error_of_the_training(tests):
    with pytest.raises(TestsError):
        parse_tests(tests)
    assert code_reward(["print(1)"], tests=[tests]) == [None]


F = "def f(x): return x + 1"


@pytest.mark.parametrize("row", rows("unusable"))
def test_tests_that_ask_what_nobody_can_answer_cannot_be_used(sandbox, row):
    with pytest.raises(TestsError, match=row["reason"]):
        grade(sandbox, F, parse_tests(row["tests"]))


def test_tests_that_are_too_long_for_python_cannot_be_used(sandbox):
    with pytest.raises(TestsError, match="recursion"):
        grade(sandbox, F, parse_tests({"test": "assert f(1) == " + "+".join(["1"] * 20_000)}))


@pytest.mark.parametrize("row", rows("pairs"))
def test_the_right_program_passes_and_the_wrong_one_fails(sandbox, row):
    tests = parse_tests(row["tests"])
    assert grade(sandbox, row["right"], tests).verdict == "passed"
    assert grade(sandbox, row["wrong"], tests).verdict != "passed"


def test_a_test_that_hangs_takes_no_credit_from_the_others(sandbox):
    asserts = [f"assert f({x}) == {x + 1}" for x in (1, 2, 3, 4)]
    tests = parse_tests({"test_list": asserts})
    code = "def f(x):\n    while x == 3: pass\n    return x + 1"
    result = grade(sandbox, code, tests, Limits(wall_seconds=0.5), stop_at_failure=False)
    assert str(result) == "timeout on test 3 of 4"
    assert result.passed == 2


@pytest.mark.parametrize("failing", ["assert f(1) == 1", "f(1).no_such_name"])
def test_nothing_runs_after_a_failure(sandbox, failing):
    tests = parse_tests({"test_list": [failing, "assert f(2) == 3"]})
    assert grade(sandbox, F, tests).passed == 0


@pytest.mark.parametrize(("end", "passed"), [("import os; os._exit(0)", 1), ("import sys; sys.exit(0)", 2)])
def test_tests_that_end_early_have_not_passed(sandbox, end, passed):
    tests = parse_tests({"test_list": ["assert f(1) == 2", end, "assert f(2) == 3"]})
    result = grade(sandbox, F, tests, stop_at_failure=False)
    assert str(result) == "exception on test 2 of 3"
    assert result.passed == passed


def test_a_program_gets_two_timeouts(sandbox, monkeypatch):
    executions = []
    execute = sandbox.execute

    def counted(jobs, limits):
        executions.append(jobs)
        return execute(jobs, limits)

    monkeypatch.setattr(sandbox, "execute", counted)
    numbers = ["1", "2", "3", "4"]
    tests = parse_tests({"inputs": numbers, "outputs": numbers})
    result = grade(sandbox, "while True: pass", tests, Limits(wall_seconds=0.2), stop_at_failure=False)
    assert str(result) == "timeout on test 1 of 4"
    assert len(executions) == 3  # the first case, all together, the second case


PROGRAM = """\
import asyncio, collections
class P:
    def __init__(self, x): self.x = x
    def double(self): return 2 * self.x
    def __len__(self): return self.x
    def __iter__(self): return iter(range(self.x))
    def __str__(self): return f'P({self.x})'
    def __repr__(self): return f'<{self.x}>'
    def __eq__(self, o): return True
    def __hash__(self): return 0
    def __lt__(self, o): return True
    def __add__(self, o): return 3
class Q(P): pass
class Point(collections.namedtuple('Point', 'x y')):
    def norm(self): return abs(self.x) + abs(self.y)
async def later(x):
    await asyncio.sleep(0)
    return x + 1
def is_point(p): return isinstance(p, Point) and p.norm()
class Own(LookupError):
    def __str__(self): return 'own: no'
def get(x): return x.x
def same(x): return x
def seven(*x): return 7
def fail(kind, *x): raise kind(*x or ['no'])
def fail_bare(kind): raise kind
"""


@pytest.mark.parametrize("row", rows("objects"))
def test_what_tests_may_do_with_objects_of_the_program(sandbox, row):
    tests = parse_tests({"test": row["test"]})
    assert (grade(sandbox, PROGRAM, tests).verdict == "passed") is row["passes"]


@pytest.mark.parametrize("stop_at_failure", [True, False])
def test_a_program_that_answers_differently_in_a_batch_has_one_guess(sandbox, stop_at_failure):
    """So it passes only tests that all expect the same."""
    program = next(program for name, program, _ in ATTACKS if name.startswith("guesses: a value in a batch"))
    passed = set()
    for outputs in itertools.product((True, False), repeat=3):
        tests = parse_tests({"fn_name": "f", "inputs": [[0]] * 3, "outputs": list(outputs)})
        result = grade(sandbox, program, tests, stop_at_failure=stop_at_failure)
        if result.verdict == "passed":
            passed.add(outputs)
    assert passed <= {(True, True, True), (False, False, False)}


def test_cases_that_a_batch_does_not_decide_all_count(sandbox):
    program = "import string\nprint(string.digits == 'seen'); string.digits = 'seen'"
    tests = parse_tests({"inputs": ["", "", ""], "outputs": ["False", "no", "False"]})
    result = grade(sandbox, program, tests, stop_at_failure=False)
    assert str(result) == "wrong answer on test 2 of 3"
    assert result.passed == 2
