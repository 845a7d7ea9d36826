"""Outputs are compared in the trainer's process: fast, whatever a program has written, and exactly."""

import json
import time

import numpy as np
import pytest

from delta_trl.rewards import code_reward
from delta_trl.sandbox import Limits, Outcome, Result, TestsError, check_tests, codec, grade, parse_tests
from delta_trl.sandbox.checker import same_output, same_value


SIZE = 8 << 20  # bytes that a program may write
SECONDS = 1.0  # some times what the slowest takes
EXPECTED = {
    "a number": 1,
    "many numbers": list(range(40_000)),
    "many keys": {str(number): number for number in range(20_000)},
}
COLLIDING = [["int", hex(number * (2**61 - 1))] for number in range(100_000)]  # all hash to 0
REPORTS = {
    "colliding set": json.dumps(["set", *COLLIDING]).encode(),
    "colliding keys": json.dumps(["dict", *[[key, None] for key in COLLIDING[:20_000]]]).encode(),
    "fraction": b'["fraction", ["int", "%s"], ["int", "%s"]]' % (b"7" * (SIZE // 2), b"3" * (SIZE // 2)),
    "integer": b'["int", "%s"]' % (b"f" * SIZE),
    "key": b'["dict", [["int", "%s"], null]]' % (b"f" * SIZE),
    "digits": b"1" * SIZE,
    "float": b'["float", "0x%s"]' % (b"1" * SIZE),
    "lists": b"[" + b"[]," * (SIZE // 3) + b"[]]",
    "objects": b"[" + b"{}," * (SIZE // 3) + b"{}]",
    "numbers": b"[" + b"1e9," * (SIZE // 4) + b"1]",
    "strings": b"[" + b'"",' * (SIZE // 3) + b'""]',
    "nested": b"[" * SIZE,
    "decimal": b'["decimal", "%s"]' % (b"1" * SIZE),
}
OUTPUTS = {
    "lines": b"x" + b"\n" * SIZE + b"x",
    "words": b"1 " * (SIZE // 2),
    "digits": b"1" * SIZE,
    "fraction": b"0." + b"1" * SIZE,
    "exponent": b"1e" + b"1" * SIZE,
    "blank": b" " * SIZE + b"x",
    "no ASCII": "é".encode() * (SIZE // 2),
}


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


def fastest(holds) -> float:
    """Seconds of this thread's that a call takes, which must be true: the least of three if the machine is busy."""
    times: list[float] = []
    while len(times) < 3 and min(times, default=SECONDS) >= SECONDS:
        started = time.thread_time()
        assert holds()
        times.append(time.thread_time() - started)
    return min(times)


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("expected", EXPECTED)
def test_a_hostile_report_is_soon_refused(report, expected):
    tests = parse_tests({"fn_name": "f", "inputs": [[]], "outputs": [EXPECTED[expected]]})
    result = Result(Outcome.OK, reports=(REPORTS[report],))
    assert fastest(lambda: tests.single(result, 0) == "wrong answer") < SECONDS


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("expected", ["1.5", "1.5 2.5\n3.5"])
def test_a_hostile_output_is_soon_refused(output, expected):
    assert fastest(lambda: not same_output(OUTPUTS[output], expected)) < SECONDS


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [
        ("1  2\t3 \n", "1 2 3", True),
        ("1.0 2", "1 2", True),
        ("9007199254740992.0", "9007199254740993", False),
        ("011", "11", False),
        ("0.0", "1e-10", False),
        ("0.0000001", "0.0", True),
        ("12", "1 2", False),
        ("a  b", "a b", False),
        ("0.3333333 1", "0.33333333 1", True),
        ("version 1.10000001", "version 1.1", False),
        ("1\n2", "1 2", False),
        ("1.00000001e-07", "1e-07", True),
        ("The total is 12345679.", "The total is 12345678.", False),
        ("1000", "1e3", False),
    ],
)
def test_outputs(given, expected, same):
    assert same_output(given.encode(), expected) is same


def test_output_is_read_once():
    """Ends of cases that go back and forth would have it read as often as there are cases."""
    reports = tuple(json.dumps({"end": end, "status": 0}).encode() for end in [SIZE, 0] * 25)
    tests = parse_tests({"inputs": [""] * 50, "outputs": ["1.5"] * 50})
    assert tests.batch(Result(Outcome.OK, stdout=b"1" * SIZE, reports=reports), range(50)) == [False]


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [
        ((1, [2.0]), [1, (2,)], True),
        (2.0, 2, True),
        (2, 2.0, True),
        (int(1e300), 1e300, True),
        (2**53 + 1, float(2**53), False),
        (0.1 + 0.2, 0.3, True),
        (float("nan"), float("nan"), True),
        (float("inf"), 1.5, False),
        (True, 1, False),
        (1, True, False),
        (None, None, True),
        (None, [], False),
        ("1", 1, False),
        ("[{,", "[{,", True),
        (["[{," * 1000], ["[{," * 1000], True),
        ([], {}, False),
        ({2: "a", 2.5: "b", None: 0, True: 3}, {"2": "a", "2.5": "b", "null": 0, "true": 3}, True),
        ({number: number for number in range(1000)}, {str(number): number for number in range(1000)}, True),
        ([float(number) for number in range(1000)], list(range(1000)), True),
        ({1: 1, "1": 1}, {"1": 1, "2": 1}, False),
        ({(1, 2): 1}, {"(1, 2)": 1}, False),
        ({1 << 20_000: 1}, {"1": 1}, False),
        ({1}, [1], False),
        (frozenset(), [], False),
        (b"a", "a", False),
        (1 << 20_000, 1 << 20_000, True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values(given, expected, same):
    encoding = json.dumps(codec.encode(given))
    assert same_value(json.loads(encoding), expected) is same
    tests = parse_tests({"fn_name": "f", "inputs": [[], []], "outputs": [expected, 0]})
    assert tests.batch(Result(Outcome.OK, reports=(encoding.encode(),)), range(1)) == [same]


@pytest.mark.parametrize("report", [[], ["int"], ["int", 5], ["int", "x"], ["float", "0x1p99999"], [["int"], "1"], {}])
def test_what_is_no_encoding_equals_nothing(report):
    assert not any(same_value(report, expected) for expected in (1, 1.5, [], [1], {}, {"a": 1}, "a", None, True))


def test_an_expected_value_is_one_that_json_has():
    with pytest.raises(TestsError, match=r"a JSON value, got \[\{1\}\]"):
        parse_tests({"fn_name": "f", "inputs": [[]], "outputs": [[{1}]]})


@pytest.mark.parametrize(
    "tests",
    [
        "[" * 100_000,
        {"test": "assert f(1) == " + "+".join(["1"] * 20_000)},
        {"test": "assert f(1) == " + "-" * 20_000 + "1"},
        {"fn_name": "f", "inputs": [[1]], "outputs": [nested(500)]},
        {"fn_name": "f", "inputs": [[nested(2000)]], "outputs": [1]},
    ],
    ids=["JSON", "a sum", "signs", "an output", "an input"],
)
def test_tests_that_are_nested_too_deeply_are_named(tests):
    with pytest.raises(TestsError, match=r"nested|not JSON"):
        parse_tests(tests)


UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(1), 2)"


UNUSABLE = (
    "would not be run|without a program|neither define nor import|'test_setup_code'|any of|returns something|handed"
)


@pytest.mark.parametrize(
    "tests",
    [
        {"test": UNITTEST},
        {"test": UNITTEST + "\nif __name__ == '__main__':\n    unittest.main()"},
        {"test": UNITTEST, "entry_point": "f"},
        {"test": "class TestF:\n    def test_a(self): assert f(1) == 2"},
        {"test": "async def test_a(): assert f(1) == 2"},
        {"test": "def test_a():\n    yield f(1) == 2"},
        {"test": "def check(candidate): assert candidate(1) == 2"},
        {"test": "from solution import f\ndef check_f(): assert f(1) == 2"},
        {"test": "def test_a():\n    assert f(1) == 2\nclass TestB:\n    def test_b(self): assert f(5) == 6"},
        {"test": "assert f(1) == 2\nasync def test_b(): assert f(5) == 6"},
        {"test": "def test_a():\n    assert f(1) == 2\ndef test_b(): yield f(5) == 6"},
        {"test": "def test_a():\n    assert f(1) == 2\ndef test_b(tmp_path): assert f(5) == 6"},
        {"test": "def check(candidate): assert same(candidate(1), 2)", "entry_point": "f"},
        {"test": "assert sum([abs(-1)]) == 1"},
        {"test": "from solution import f\ndef test_a(): assert f(1) == approx(2)"},
        {"test": "import unittest\nf(1)\nclass T(unittest.TestCase):\n    def testA(self): self.assertEqual(f(1), 2)"},
        {"test": "from solution import f, g\n@g\ndef test_a(): assert f(1) == 2"},
        {"test": "def check(candidate): assert candidate(1) == 2", "test_list": ["assert f(0) == 1"]},
        {"test": "assert f(0) == 1\nclass TestF:\n    def testA(self): assert f(1) == 2"},
        {"test": "assert f(0) == 1\ndef verify(): assert f(1) == 2"},
        {"test": "assert f(0) == 1\ndef setup_module(): f.reset()"},
        {"test": "assert f(0) == 1\nif __name__ == '__main__':\n    assert f(1) == 2"},
        {"test": "def main(): assert f(1) == 2\nassert f(0) == 1\nif __name__ == '__main__':\n    main()"},
        {"test": "assert (f(1) == 2, 'wrong')"},
        {"test": "f(1) == 2"},
        {"test_list": ["f(1) == 2", "print(f(2) == 3)"]},
        {"test": "def test_a(): return f(1) == 2"},
        {"test": "def check(candidate): return candidate(1) == 2", "entry_point": "f"},
        {"test": "try:\n    assert f(1) == 2\nexcept Exception as error:\n    print(error)"},
        {"test": "assert fast(10) == slow(10)"},
    ],
    ids=lambda tests: str(tests)[-40:],
)
def test_tests_that_a_wrong_program_could_pass_cannot_be_used(sandbox, tests):
    with pytest.raises(TestsError, match=UNUSABLE):
        check_tests(sandbox, parse_tests(tests), Limits())


@pytest.mark.parametrize(
    "tests",
    [
        json.dumps({"inputs": ["1"], "outputs": ["LONG"]}).replace('"LONG"', "1" * 5000),
        {"fn_name": "f", "inputs": [[np.array([1])]], "outputs": [1]},
        {"test_list": np.array(["assert f(1) == 1", "assert f(2) == 2"])},
    ],
    ids=["long", "array", "column"],
)
def test_tests_that_cannot_be_read_are_no_error_of_the_training(tests):
    with pytest.raises(TestsError, match=r"cannot be read: .*(4300 digits|not plain data|ambiguous)"):
        parse_tests(tests)
    assert code_reward(["print(1)"], tests=[tests]) == [None]


@pytest.mark.parametrize(
    "tests",
    [
        {"inputs": ["1", "2"], "outputs": ["", "\n"]},
        {"inputs": ["1"], "outputs": [None]},
        {"inputs": ["1"], "outputs": [{"a": 1}]},
        {"fn_name": "f", "inputs": [[[1, 2]], [[]]], "outputs": [None, None]},
        {"fn_name": "f", "inputs": [[1]], "outputs": [2], "test": "assert f(0) == 1"},
        {"test_imports": "import math", "test_list": ["assert f(0) == 1"]},
    ],
    ids=str,
)
def test_tests_that_ask_nothing_or_two_things_cannot_be_used(tests):
    with pytest.raises(TestsError, match=r"does nothing would pass|is a text, got|got both|are lists of texts"):
        parse_tests(tests)


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
    parsed = parse_tests(tests)
    check_tests(sandbox, parsed, Limits())
    verdicts = [grade(sandbox, f"def f(x): return {value}", parsed).verdict for value in ("x + 1", "0")]
    assert verdicts == ["passed", "wrong answer"]


def test_tests_that_only_a_program_ends_can_be_used(sandbox):
    tests = parse_tests({"test": "n = 6\nwhile n != 1:\n    n = step(n)\nassert step(1) == 4"})
    tests = check_tests(sandbox, tests, Limits(wall_seconds=1))
    assert grade(sandbox, "def step(n): return n // 2 if n % 2 == 0 else 3 * n + 1", tests).verdict == "passed"


@pytest.mark.parametrize("outcome", [Outcome.SANDBOX_ERROR, Outcome.TIMEOUT])
def test_a_machine_that_failed_once_lets_no_tests_through(sandbox, monkeypatch, outcome):
    """Tests that ask nothing would pay every program."""
    tests = parse_tests({"test": f"from solution import f\ndef test_{outcome.name}(): f(5) == 25"})
    execute, failures = sandbox.execute, [Result(outcome)]
    monkeypatch.setattr(sandbox, "execute", lambda *a: failures.pop() if failures else execute(*a))
    with pytest.raises(TestsError, match="sandbox failed" if outcome is Outcome.SANDBOX_ERROR else UNUSABLE):
        check_tests(sandbox, tests, Limits())
    with pytest.raises(TestsError, match=UNUSABLE):  # nothing was kept
        check_tests(sandbox, tests, Limits())


@pytest.mark.parametrize(
    ("units", "share"),
    [
        (
            [
                "from solution import f\nimport math",
                "def test_a(): assert f(1) == 2",
                "def test_b(): assert f(3) == 6",
            ],
            0,
        ),
        (["from solution import f", "x = 5", "assert f(1) == 2"], 0),
        (["def helper(a, b): assert a == b", "helper(f(1), 2)", "helper(f(0), 0)"], 0.5),
        (["assert f(1) != 7", "assert f(1) == 2"], 0),
        (["assert f(1) == 0", "assert f(1) != 7"], 1),
        (["assert f(1) == 0", "assert f(1) == 1", "import math", "x = 5"], 0.5),
        (["assert f(1) == 0", "assert f(1) != 0"], 0),
    ],
)
def test_tests_that_pass_without_a_program_earn_nothing(sandbox, units, share):
    tests = check_tests(sandbox, parse_tests({"test_list": units}), Limits())
    assert grade(sandbox, "def f(x): return 0", tests, stop_at_failure=False).share == share


def test_a_test_that_hangs_takes_no_credit_from_the_others(sandbox):
    tests = parse_tests(
        {"test_list": ["assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4", "assert f(4) == 5"]}
    )
    code = "def f(x):\n    while x == 3: pass\n    return x + 1"
    result = grade(sandbox, code, tests, Limits(wall_seconds=1), stop_at_failure=False)
    assert str(result) == "timeout on test 3 of 4"
    assert result.passed == 2


def test_cases_without_output_earn_nothing(sandbox):
    cases = [
        ({"inputs": ["1", "2"], "outputs": ["", "5"]}, "pass"),
        ({"fn_name": "f", "inputs": [[1], [2]], "outputs": [None, 5]}, "def f(x): pass"),
    ]
    for tests, code in cases:
        result = grade(sandbox, code, parse_tests(tests), stop_at_failure=False)
        assert (result.passed, result.share) == (1, 0)


@pytest.mark.parametrize(
    ("tests", "right", "wrong"),
    [
        ({"test": "assert sum(10, 15) == 6", "entry_point": "sum"}, "def sum(a, b): return 6", "def total(a, b): 6"),
        (
            {"test": "assert sum(1, 2) == T", "test_setup_code": "T = sum([1, 2])", "entry_point": "sum"},
            "def sum(a, b): return a + b",
            "def sum(a, b): return a",
        ),
        ({"test": "assert max(1, 2) == 2", "entry_point": "max"}, "def max(a, b): return b", "x = 1"),
        ({"test": "assert max(1, 2) == 2"}, "def max(a, b): return b", "x = 1"),
    ],
)
def test_a_function_may_be_called_like_one_of_python(sandbox, tests, right, wrong):
    tests = check_tests(sandbox, parse_tests(tests), Limits())
    assert [grade(sandbox, code, tests).verdict == "passed" for code in (right, wrong)] == [True, False]


def test_numpy_compares_what_it_is_given(sandbox):
    units = {
        "assert_equal(f(1), [[1], [2, 3]])": ("[[1], [2, 3]]", "[[1], [2, 4]]"),
        "assert_equal(f(1), [1, 'a'])": ("[1, 'a']", "['1', 'a']"),
        "assert_equal(f(1), {'a': 1.0, 'b': 2})": ("{'a': 1, 'b': 2}", "dict.fromkeys('ab', np.zeros(0))"),
        "assert_equal(f(1), (3, [1, 2]))": ("(3, [1, 2])", "(np.zeros(0), [np.zeros(0)] * 2)"),
        "assert_string_equal(f(1), 'abc')": ("'abc'", "'abd'"),
    }
    for unit, values in units.items():
        tests = parse_tests({"test": f"import numpy as np\nnp.testing.{unit}"})
        code = "import numpy as np\ndef f(x): return "
        verdicts = [grade(sandbox, code + value, tests).verdict for value in values]
        assert verdicts == ["passed", "wrong answer"], unit


def test_partial_credit_counts_functions(sandbox):
    units = "def test_a(): assert f(1) == 2\ndef test_b(): assert f(2) == 3\ndef test_c(): assert f(3) == 0"
    result = grade(sandbox, "def f(x): return x + 1", parse_tests({"test": units}), stop_at_failure=False)
    assert (result.passed, result.total, round(result.share, 3)) == (2, 3, 0.667)


@pytest.mark.parametrize("given", ["lambda x: x", "[print, open, T()]", "T", "(i for i in [1])"])
def test_objects_of_the_tests_are_not_handed_over(sandbox, given):
    tests = parse_tests({"test": f"class T: pass\nassert f({given}) == 1"})
    with pytest.raises(TestsError, match="handed to the program"):
        check_tests(sandbox, tests, Limits())


@pytest.mark.parametrize(
    ("test", "passes"),
    [
        ("p = P(1)\nassert p.double() == 2 and p.x == 1\np.x = 5\nassert p.double() == 10", True),
        ("assert get(P(3)) == 3 and get(x=P(4)) == 4", True),
        ("assert len(P(2)) == 2 and list(P(2)) == [0, 1] and str(P(2)) == 'P(2)'", True),
        ("p = P(2)\nassert list(p) == [0, 1] and list(p) == [0, 1]", False),
        ("assert P(1).x == 1 and P(1) == P(1)", False),
        ("p = P(1)\nassert p.x == 1 and p == p", False),
        ("assert P(1) < P(2)", False),
        ("assert P(1) + P(2) == 3", False),
        ("assert P(5)[0] == 0", False),
        ("assert len({P(1)}) == 1", False),
        (
            "try:\n    fail(ValueError)\nexcept ValueError as e:\n    assert e.args == ('no',)\nelse:\n    1 / 0",
            True,
        ),
        (
            "try:\n    fail(Own)\nexcept LookupError as e:\n    assert str(e) == 'own: no'\nelse:\n    1 / 0",
            True,
        ),
        ("try:\n    fail(Own)\nexcept Own:\n    pass\nelse:\n    assert False", False),
        ("x = [3, 1]\nsort(x)\nassert x == [1, 3]", True),
    ],
)
def test_what_tests_may_do_with_objects_of_the_program(sandbox, test, passes):
    code = (
        "class P:\n    def __init__(self, x): self.x = x\n    def double(self): return 2 * self.x\n"
        "    def __len__(self): return self.x\n    def __iter__(self): return iter(range(self.x))\n"
        "    def __str__(self): return f'P({self.x})'\n    def __eq__(self, o): return True\n"
        "    def __hash__(self): return 0\n    def __lt__(self, o): return True\n"
        "    def __add__(self, o): return 3\n    def __getitem__(self, i): return 0\n"
        "class Own(LookupError):\n    def __str__(self): return 'own: no'\n"
        "def get(x): return x.x\ndef fail(kind): raise kind('no')\ndef sort(x): x.sort()\n"
    )
    assert (grade(sandbox, code, parse_tests({"test": test})).verdict == "passed") is passes
