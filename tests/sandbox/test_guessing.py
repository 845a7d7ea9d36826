"""A program that answers a test differently in a batch and alone can only pass tests that all expect the same."""

import itertools

import pytest

from delta_trl.sandbox import grade, parse_tests

from ..corpus.attacks import guesses


KEYS = list(itertools.product((True, False), repeat=3))


@pytest.mark.parametrize("kind", ["stdin", "calls"])
@pytest.mark.parametrize("stop_at_failure", [True, False])
def test_a_program_with_two_faces(sandbox, kind, stop_at_failure):
    passed = []
    for key in KEYS:
        if kind == "stdin":
            tests = {"inputs": ["x"] * 3, "outputs": ["YES" if answer else "NO" for answer in key]}
        else:
            tests = {"fn_name": "f", "inputs": [[0]] * 3, "outputs": list(key)}
        code = guesses.STDIN if kind == "stdin" else guesses.CALLS
        if grade(sandbox, code, parse_tests(tests), stop_at_failure=stop_at_failure).verdict == "passed":
            passed.append(key)
    assert set(passed) <= {(True,) * 3, (False,) * 3}


def test_what_is_kept_from_an_earlier_case_is_not_held_against_a_program(sandbox):
    """It fails in a batch and passes alone, on every case."""
    code = "import string\nprint(string.digits == 'seen'); string.digits = 'seen'"
    tests = parse_tests({"inputs": [""] * 3, "outputs": ["False"] * 3})
    assert str(grade(sandbox, code, tests)) == "passed 3 of 3"
