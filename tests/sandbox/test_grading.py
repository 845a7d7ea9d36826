"""Tests that cannot be used, and tests that are code."""

import json

import numpy as np
import pytest

from delta_trl.rewards import code_reward
from delta_trl.sandbox import Limits, TestsError, grade, parse_tests


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "tests",
    [
        "[" * 100_000,
        json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": ["LONG"]}).replace('"LONG"', "1" * 5000),
        {"fn_name": "f", "inputs": [[1]], "outputs": [nested(500)]},
        {"fn_name": "f", "inputs": [[nested(2000)]], "outputs": [1]},
        {"fn_name": "f", "inputs": [[np.array([1])]], "outputs": [1]},
        {"fn_name": "f", "inputs": [[]], "outputs": [[{1}]]},
        {"fn_name": "f", "inputs": [[1]], "outputs": [2], "test": "assert f(0) == 1"},
        {"fn_name": "f", "inputs": [[[1, 2]], [[]]], "outputs": [None, None]},
        {"test_list": np.array(["assert f(1) == 1", "assert f(2) == 2"])},
        {"test_imports": "import math", "test_list": ["assert f(0) == 1"]},
        {"inputs": ["1", "2"], "outputs": ["", "\n"]},
        {"inputs": ["1"], "outputs": [None]},
        {"inputs": ["1"], "outputs": [{"a": 1}]},
        {"inputs": []},
        5,
    ],
    ids=range(15),
)
def test_tests_that_cannot_be_read_are_no_error_of_the_training(tests):
    with pytest.raises(TestsError):
        parse_tests(tests)
    assert code_reward(["print(1)"], tests=[tests]) == [None]


UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(1), 2)"


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ({"test": "assert f(1) == " + "+".join(["1"] * 20_000)}, "recursion"),
        ({"test": "import no_such_module\nassert f(1) == 2"}, "no_such_module"),
        # what nobody runs
        ({"test": UNITTEST}, "not be run"),
        ({"test": UNITTEST + "\nif __name__ == '__main__':\n    unittest.main()"}, "not be run"),
        ({"test": UNITTEST, "entry_point": "f"}, "not be run"),
        ({"test": "def check(candidate): assert candidate(1) == 2"}, "not be run"),
        ({"test": "def check(candidate): assert candidate(1) == 2", "test_list": ["assert f(0) == 1"]}, "not be run"),
        (
            {"test": "def test_a():\n    assert f(1) == 2\nclass B:\n    def test_b(self): assert f(5)"},
            "not be run",
        ),
        ({"test": "def test_a():\n    assert f(1) == 2\ndef test_b(tmp_path): assert f(5) == 6"}, "not be run"),
        ({"test": "assert f(0) == 1\ndef verify(): assert f(1) == 2"}, "not be run"),
        ({"test": "assert f(0) == 1\nif __name__ == '__main__':\n    assert f(1) == 2"}, "not be run"),
        (
            {"test": "def main(): assert f(1) == 2\nassert f(0) == 1\nif __name__ == '__main__':\n    main()"},
            "not be run",
        ),
        # whose names these are
        ({"test": "def check(candidate): assert same(candidate(1), 2)", "entry_point": "f"}, "same"),
        ({"test": "from solution import f\ndef test_a(): assert f(1) == approx(2)"}, "approx"),
        ({"test": "assert sum([abs(-1)]) == 1"}, "any of"),
    ],
    ids=lambda tests: str(tests)[-40:],
)
def test_tests_that_ask_what_nobody_can_answer_cannot_be_used(sandbox, tests, reason):
    with pytest.raises(TestsError, match=reason):
        grade(sandbox, "def f(x): return x + 1", parse_tests(tests))


@pytest.mark.parametrize(
    "test",
    [
        "async def test_a(): assert f(1) == 2",
        "def test_a():\n    assert f(1) == 2\ndef test_b(): yield f(5) == 6",
        "def test_a(): return f(1) == 2",
        "assert f(lambda x: x) == 1",
        "assert f([print, open]) == 1\nassert f((i for i in [1])) == 1",
        "class T: pass\ndef test_a():\n    for x in (1, T()): assert f(x) == 1",
        "from solution import f, g\n@g\ndef test_a(): assert f(1) == 2",
    ],
)
def test_what_lets_the_program_decide_fails(sandbox, test):
    code = "def f(x): return 2\ndef g(x): return x"
    assert grade(sandbox, code, parse_tests({"test": test})).verdict != "passed"


@pytest.mark.parametrize(
    "tests",
    [
        {"test_list": ["assert f(1) == 2"], "entry_point": "f"},
        {"test_list": ["assert f(1) == 2"], "test": "def check(g): assert g(2) == 3", "entry_point": "f"},
        {"test": "def test_a(): assert f(1) == 2\nif __name__ == '__main__':\n    import pytest\n    pytest.main()"},
    ],
    ids=lambda tests: str(tests)[-40:],
)
def test_whether_tests_can_be_used_does_not_depend_on_the_program(sandbox, tests):
    verdicts = [grade(sandbox, f"def f(x): return {value}", parse_tests(tests)).verdict for value in ("x + 1", "0")]
    assert verdicts == ["passed", "wrong answer"]


def test_tests_that_only_a_program_ends_can_be_used(sandbox):
    tests = parse_tests({"test": "n = 6\nwhile n != 1:\n    n = step(n)\nassert step(1) == 4"})
    code = "def step(n): return n // 2 if n % 2 == 0 else 3 * n + 1"
    assert grade(sandbox, code, tests, Limits(wall_seconds=0.5)).verdict == "passed"


@pytest.mark.parametrize(
    ("tests", "passed", "total"),
    [
        ({"test_list": ["def test_a(): assert f(1) == 0\ndef test_b(): assert f(2) == 0", "assert f(3) == 1"]}, 2, 3),
        ({"test_list": ["assert f(1) == 0", "assert f(1) == 1", "assert f(2) == 0"]}, 2, 3),
        ({"inputs": ["1", "2"], "outputs": ["", "5"]}, 1, 2),
        ({"fn_name": "f", "inputs": [[1], [2]], "outputs": [0, 5]}, 1, 2),
    ],
)
def test_partial_credit_counts_functions_and_cases(sandbox, tests, passed, total):
    result = grade(sandbox, "def f(x): return 0", parse_tests(tests), stop_at_failure=False)
    assert (result.passed, result.total) == (passed, total)


def test_a_test_that_hangs_takes_no_credit_from_the_others(sandbox):
    tests = parse_tests({"test_list": [f"assert f({x}) == {x + 1}" for x in (1, 2, 3, 4)]})
    code = "def f(x):\n    while x == 3: pass\n    return x + 1"
    result = grade(sandbox, code, tests, Limits(wall_seconds=0.5), stop_at_failure=False)
    assert (str(result), result.passed) == ("timeout on test 3 of 4", 2)


@pytest.mark.parametrize(
    ("tests", "right", "wrong"),
    [
        ({"test": "assert sum(10, 15) == 6", "entry_point": "sum"}, "def sum(a, b): return 6", "def total(a, b): 6"),
        ({"test": "assert max(1, 2) == 2", "entry_point": "max"}, "def max(a, b): return b", "x = 1"),
        ({"test": "assert max(1, 2) == 2"}, "def max(a, b): return b", "x = 1"),
        ({"test": "class T: x = 1\nassert Counter().n == T.x"}, "class Counter: n = 1", "x = 1"),
    ],
)
def test_a_function_may_be_called_like_one_that_tests_have(sandbox, tests, right, wrong):
    verdicts = [grade(sandbox, code, parse_tests(tests)).verdict == "passed" for code in (right, wrong)]
    assert verdicts == [True, False]


@pytest.mark.parametrize(
    ("unit", "right", "wrong"),
    [
        ("assert_equal(f(1), [[1], [2, 3]])", "[[1], [2, 3]]", "[[1], [2, 4]]"),
        ("assert_allclose(f(1), [2.5, 3])", "[2.5, 3]", "np.zeros((0, 1))"),
        ("assert_allclose(f(1), 2.5)", "2.5", "[]"),
    ],
)
def test_numpy_compares_what_it_is_given(sandbox, unit, right, wrong):
    tests = parse_tests({"test": f"import numpy as np\nnp.testing.{unit}"})
    code = "import numpy as np\ndef f(x): return "
    assert [grade(sandbox, code + value, tests).verdict for value in (right, wrong)] == ["passed", "wrong answer"]


PROGRAM = """\
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
    def __getitem__(self, i): return 0
class Own(LookupError):
    def __str__(self): return 'own: no'
def get(x): return x.x
def fail(kind): raise kind('no')
def sort(x): x.sort()
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
        ("assert P(1).x == 1 and P(1) == P(1)", False),
        ("p = P(1)\nassert p.x == 1 and p == p", False),
        ("assert P(1) < P(2)", False),
        ("assert P(1) + P(2) == 3", False),
        ("assert P(5)[0] == 0", False),
        ("assert len({P(1)}) == 1", False),
        ("try: fail(ValueError)\nexcept ValueError as e: assert e.args == ('no',)\nelse: 1 / 0", True),
        ("try: fail(KeyError)\nexcept KeyError as e: assert str(e) == \"'no'\"\nelse: 1 / 0", True),
        ("try: fail(Own)\nexcept LookupError as e: assert str(e) == 'own: no'\nelse: 1 / 0", True),
        ("try: fail(Own)\nexcept Own: pass\nelse: assert False", False),
        ("x = [3, 1]\nsort(x)\nassert x == [1, 3]", True),
    ],
)
def test_what_tests_may_do_with_objects_of_the_program(sandbox, test, passes):
    assert (grade(sandbox, PROGRAM, parse_tests({"test": test})).verdict == "passed") is passes
