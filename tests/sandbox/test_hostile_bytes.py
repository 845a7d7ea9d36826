"""Whatever a program writes, nothing raises on the host, and no program forces `None`."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_trl.rewards.code import code_reward, extract_program
from delta_trl.sandbox import Outcome, Result, grade, parse_tests

from ..corpus.bytes import BYTES


PRINTED = ("7", "0.5", "1e3", "1e99999999999999999999", "7 0.5\n1e-10", "text", "\ud800", "9" * 5000)
RETURNED = (7, 0.5, 2**80, "text", [[]], {"a": 1}, float("nan"), True)
CASES = [
    *({"inputs": ["", ""], "outputs": [output, output]} for output in PRINTED),
    *({"fn_name": "f", "inputs": [[], []], "outputs": [output, output]} for output in RETURNED),
]
SUITE = {"test": "assert f(1) == 7"}
TESTS = st.sampled_from([*CASES, SUITE])
OUTCOMES = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.SANDBOX_ERROR])


class OneResult:
    """A sandbox that gives one result, as a program could have made it."""

    is_local = True

    def __init__(self, result):
        self.result = result

    def execute(self, jobs, limits):
        return self.result


@settings(max_examples=300)
@given(st.sampled_from(CASES), OUTCOMES, BYTES, st.lists(BYTES, max_size=2))
def test_comparison(tests, outcome, stdout, reports):
    result = Result(outcome, stdout, b"", tuple(reports))
    parsed = parse_tests(tests)
    passed = parsed.passes(result, range(2))
    assert set(passed) <= {True, False}
    graded = grade(OneResult(result), "", parsed, code_reward.limits)
    assert graded.graded


PROGRAM = """
import os
def f(*arguments): pass
for descriptor, content in {contents}.items():
    try: os.write(descriptor, content)
    except OSError: pass
os._exit({status})
"""


CONTENTS = st.dictionaries(st.sampled_from([1, 2, 3, 4]), BYTES)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TESTS, CONTENTS, st.integers(0, 1))
def test_descriptors_of_a_program(tier, tests, contents, status):
    """Output, error, the reports and the link to the tests' process."""
    program = PROGRAM.format(contents=contents, status=status)
    (reward,) = code_reward([f"```python\n{program}\n```"], [tests])
    assert reward in (0.0, 1.0)


MARKS = st.sampled_from(
    ["```", "```python", "~~~", "\n", "def f():", "class f", "f = ", "f(", '"""', "<think>", "</think>"]
)
TEXTS = st.lists(MARKS | st.text(max_size=3), max_size=12).map("".join)


@given(TEXTS, TEXTS, TESTS)
def test_extraction(text, prompt, tests):
    program = extract_program(text, parse_tests(tests), prompt)
    assert isinstance(program, str | None)
