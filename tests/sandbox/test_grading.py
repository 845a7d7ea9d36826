"""Tests that cannot be used, and tests that are code."""

import itertools
import json

import numpy as np
import pytest

from delta_trl.rewards import code_reward
from delta_trl.sandbox import Limits, TestsError, grade, parse_tests

from ..corpus.programs import ATTACKS


@pytest.mark.parametrize(
    "tests",
    [
        "[" * 100_000,
        json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": ["LONG"]}).replace('"LONG"', "1" * 5000),
        {"fn_name": "f", "inputs": [[1]], "outputs": [json.loads("[" * 500 + "]" * 500)]},
        {"fn_name": "f", "inputs": [[np.array([1])]], "outputs": [1]},
        {"fn_name": "f", "inputs": [[1]], "outputs": [2], "test": "assert f(0) == 1"},
        {"fn_name": "f", "inputs": [[[1, 2]], [[]]], "outputs": [None, None]},
        {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[None], [""]]},
        {"test_imports": "import math", "test_list": ["assert f(0) == 1"]},
        {"inputs": ["1", "2"], "outputs": ["", "\n"]},
        {"inputs": ["1"], "outputs": [None]},
        {"fn_name": "Other().f", "inputs": [[1]], "outputs": [2]},
        {"test": "def check(candidate): assert candidate(1) == 2", "entry_point": "Solution()"},
        5,
    ],
    ids=range(13),
)
def test_tests_that_cannot_be_read_are_no_error_of_the_training(tests):
    with pytest.raises(TestsError):
        parse_tests(tests)
    assert code_reward(["print(1)"], tests=[tests]) == [None]


F = "def f(x): return x + 1"
UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(1), 2)"


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ({"test": "assert f(1) == " + "+".join(["1"] * 20_000)}, "recursion"),
        ({"test": "import no_such_module\nassert f(1) == 2"}, "no_such_module"),
        # what nobody runs
        ({"test": UNITTEST + "\nif __name__ == '__main__':\n    unittest.main()"}, "not be run"),
        ({"test": "def check(candidate): assert candidate(1) == 2"}, "not be run"),
        ({"test": "assert f(0) == 1\nif __name__ == '__main__':\n    assert f(1) == 2"}, "not be run"),
        ({"test": "def a(): assert f(1)\nassert f(0)\nif __name__ == '__main__':\n    a()"}, "not be run"),
        # whose names these are
        ({"test": "def check(candidate): assert same(candidate(1), 2)", "entry_point": "f"}, "same"),
        ({"test": "from solution import f\ndef test_a(): assert f(1) == approx(2)"}, "approx"),
        ({"test": "assert sum([abs(-1)]) == 1"}, "any of"),
        # what pytest has and we have not
        (
            {"test": "import pytest\n@pytest.fixture\ndef x(): return 1\ndef test_a(): assert f(1) == 2"},
            "pytest.fixture",
        ),
        ({"test": "import pytest\n@pytest.mark.skip\ndef test_a(): assert f(1) == 2"}, "pytest.mark.skip"),
        ({"test": "from pytest import fixture\nassert f(1) == 2"}, "fixture"),
        (
            {"test": "import pytest\nclass T:\n    def test_a(self):\n        with pytest.raises(E): f(1)"},
            "not be run",
        ),
        ({"test": "def test_a(tmp_path): assert f(1) == 2"}, "not be run"),
    ],
    ids=lambda tests: str(tests)[-40:],
)
def test_tests_that_ask_what_nobody_can_answer_cannot_be_used(sandbox, tests, reason):
    with pytest.raises(TestsError, match=reason):
        grade(sandbox, F, parse_tests(tests))


@pytest.mark.parametrize(
    "test",
    [
        "def test_a(): return f(1) == 2",
        "assert f(lambda x: x) == 1",
        "from solution import f, g\n@g\ndef test_a(): assert f(1) == 2",
    ],
)
def test_what_lets_the_program_decide_fails(sandbox, test):
    code = "def f(x): return 2\ndef g(x): return x"
    assert grade(sandbox, code, parse_tests({"test": test})).verdict != "passed"


NUMPY = "import numpy as np\nnp.testing.assert_allclose(f(1), "
ARRAY = "import numpy as np\ndef f(x): return "


@pytest.mark.parametrize(
    ("tests", "right", "wrong"),
    [
        # whether they can be used does not depend on the program
        ({"test_list": ["assert f(1) == 2"], "entry_point": "f"}, F, "def f(x): return 0"),
        (
            {"test_list": ["assert f(1) == 2"], "test": "def check(g): assert g(2) == 3", "entry_point": "f"},
            *(F, "def f(x): return 2"),
        ),
        ({"test": "def test_a(): assert f(1) == 2\nif __name__ == '__main__':\n    import pytest"}, F, "f = int"),
        # a function may be called like one that tests have
        ({"test": "assert sum(10, 15) == 6", "entry_point": "sum"}, "def sum(a, b): return 6", "def total(a, b): 6"),
        ({"test": "assert max(1, 2) == 2"}, "def max(a, b): return b", "x = 1"),
        ({"test": "class T: x = 1\nassert Counter().n == T.x"}, "class Counter: n = 1", "x = 1"),
        # numpy finds an empty array close to every number
        ({"test": f"{NUMPY} [2.5, 3])"}, f"{ARRAY} [2.5, 3]", f"{ARRAY} np.zeros((0, 1))"),
        ({"test": f"{NUMPY} 2.5)"}, f"{ARRAY} 2.5", f"{ARRAY} []"),
        ({"test": "import pytest\nassert f(1) == pytest.approx(2.5)"}, f"{ARRAY} 2.5", f"{ARRAY} np.zeros(0)"),
        # values in lists, as some data sets have them
        ({"fn_name": "f", "inputs": [[1], [2]], "outputs": [["a"], ["a"]]}, "def f(x): return 'a'", "def f(x): 'a'"),
        ({"fn_name": "f", "inputs": [[1], [2]], "outputs": [["a"], ["a"]]}, "def f(x): return ['a']", "f = list"),
        ({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[2], [2, 2]]}, "def f(x): return [2] * x", "f = abs"),
        # NaN is near every number to a test that raises for what is far
        ({"test": "if abs(f(1) - 2) > 1e-6: raise ValueError"}, F, "def f(x): return float('nan')"),
        ({"test": "if abs(f(1) - 2) > 1e-6: raise ValueError"}, F, "def f(x): return complex('nan')"),
        (
            {"test": "if (abs(f(1) - 2) > 1e-6).any(): raise ValueError"},
            f"{ARRAY} 2 * np.ones(1)",
            f"{ARRAY} np.nan * np.ones(1)",
        ),
        ({"test": "import math\nassert math.isnan(f(1))"}, "def f(x): return float('nan')", F),
        # a reference that reads what a call has left of its argument
        ({"test": "x = [1, 2]\nassert f(x) == sum(x)"}, "def f(x): return sum(x)", "def f(x): x.clear(); return 0"),
        ({"test": "x = [2, 1]\nf(x)\nassert x == [1, 2]"}, "def f(x): x.sort()", "def f(x): return x.sort() or x"),
    ],
    ids=range(18),
)
def test_the_right_program_passes_and_the_wrong_one_fails(sandbox, tests, right, wrong):
    assert grade(sandbox, right, parse_tests(tests)).verdict == "passed"
    assert grade(sandbox, wrong, parse_tests(tests)).verdict != "passed"


def test_a_test_that_hangs_takes_no_credit_from_the_others(sandbox):
    tests = parse_tests({"test_list": [f"assert f({x}) == {x + 1}" for x in (1, 2, 3, 4)]})
    code = "def f(x):\n    while x == 3: pass\n    return x + 1"
    result = grade(sandbox, code, tests, Limits(wall_seconds=0.5), stop_at_failure=False)
    assert (str(result), result.passed) == ("timeout on test 3 of 4", 2)


def test_a_program_gets_two_timeouts(sandbox, monkeypatch):
    executions, execute = [], sandbox.execute
    monkeypatch.setattr(sandbox, "execute", lambda jobs, limits: executions.append(jobs) or execute(jobs, limits))
    tests = parse_tests({"inputs": ["1", "2", "3", "4"], "outputs": ["1", "2", "3", "4"]})
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
    def __eq__(self, o): return True
    def __hash__(self): return 0
    def __lt__(self, o): return True
    def __add__(self, o): return 3
class Point(collections.namedtuple('Point', 'x y')):
    def norm(self): return abs(self.x) + abs(self.y)
async def later(x):
    await asyncio.sleep(0)
    return x + 1
def is_point(p): return isinstance(p, Point) and p.norm()
class Own(LookupError):
    def __str__(self): return 'own: no'
def get(x): return x.x
def fail(kind): raise kind('no')
"""


@pytest.mark.parametrize(
    ("test", "passes"),
    [
        ("p = P(1)\nassert p.double() == 2 and p.x == 1\np.x = 5\nassert p.double() == 10", True),
        ("assert get(P(3)) == 3 and get(x=P(4)) == 4", True),
        ("assert len(P(2)) == 2 and list(P(2)) == [0, 1] and str(P(2)) == 'P(2)'", True),
        ("p = P(2)\nassert len(p) == 2\np.x = 3\nassert len(p) == 3", True),
        ("p = P(2)\nassert list(p) == [0, 1] and list(p) == [0, 1]", False),
        ("p = P(2)\nassert len(p) == 2 and list(p) == [0, 1]", False),
        ("p = P(2)\nassert list(p) == [0, 1] and len(p) == 2", False),
        ("assert isinstance(P(1), P) and isinstance(P(1), (int, P)) and not isinstance(1, P)", True),
        ("assert isinstance(1, P)", False),
        ("assert type(P(1)).__name__ == P.__name__ == 'P' and type(1) is int and type('C', (), {})().__class__", True),
        ("assert type(P(1)).__name__ == 'Point'", False),
        ("p = Point(1, 2)\nassert p.x == 1 and p == (1, 2) and p._fields == ('x', 'y') and is_point(p) == 3", True),
        ("import collections\np = collections.namedtuple('Q', 'x y')(1, 2)\nassert is_point(p)", False),
        ("import asyncio\nassert asyncio.run(later(1)) == 2", True),
        ("import asyncio\nassert asyncio.run(later(1)) == 1", False),
        ("async def test_a():\n    assert await later(1) == 2", True),
        ("async def test_a():\n    assert await later(1) == 1", False),
        ("import asyncio\nasync def test_a():\n    assert await asyncio.gather(later(1), later(2)) == [2, 3]", True),
        ("p = P(1)\nassert p.x == 1 and p == p", False),
        ("assert P(1) < P(2)", False),
        ("assert P(1) + P(2) == 3", False),
        ("assert len({P(1)}) == 1", False),
        ("try: fail(ValueError)\nexcept ValueError as e: assert e.args == ('no',)\nelse: 1 / 0", True),
        ("try: fail(KeyError)\nexcept KeyError as e: assert str(e) == \"'no'\"\nelse: 1 / 0", True),
        ("try: fail(Own)\nexcept LookupError as e: assert str(e) == 'own: no'\nelse: 1 / 0", True),
        ("try: fail(Own)\nexcept Own: pass\nelse: assert False", False),
    ],
)
def test_what_tests_may_do_with_objects_of_the_program(sandbox, test, passes):
    assert (grade(sandbox, PROGRAM, parse_tests({"test": test})).verdict == "passed") is passes


@pytest.mark.parametrize("stop_at_failure", [True, False])
def test_a_program_that_answers_differently_in_a_batch_has_one_guess(sandbox, stop_at_failure):
    """So it passes only tests that all expect the same."""
    program = next(program for name, program, _ in ATTACKS if name.startswith("guesses: a value in a batch"))
    passed = []
    for key in itertools.product((True, False), repeat=3):
        tests = parse_tests({"fn_name": "f", "inputs": [[0]] * 3, "outputs": list(key)})
        if grade(sandbox, program, tests, stop_at_failure=stop_at_failure).verdict == "passed":
            passed.append(key)
    assert set(passed) <= {(True,) * 3, (False,) * 3}


def test_what_is_kept_from_an_earlier_case_is_not_held_against_a_program(sandbox):
    """It fails in a batch and passes alone, on every case."""
    code = "import string\nprint(string.digits == 'seen'); string.digits = 'seen'"
    tests = parse_tests({"inputs": [""] * 3, "outputs": ["False"] * 3})
    assert str(grade(sandbox, code, tests)) == "passed 3 of 3"
