"""Code problems with several right outputs, which a checker of the user's judges."""

import json
import logging
import sys

import pytest

from delta_trl.cli import main
from delta_trl.rewards import code_reward
from delta_trl.sandbox import TestsError, parse_tests
from delta_trl.sandbox.own_checker import CheckerError, warn_of_exception

from ..corpus import tiny


CHECKERS = '''
from functools import cache
from os import execl
from os.path import join

def sums_to(given, output, expected):
    """Two numbers that sum to the input, whichever."""
    one, other = map(int, output.split())
    return one + other == int(given)

cached = cache(sums_to)
def rejects(given, output, expected): return False
def breaks(given, output, expected): return output[99]
def forgets(given, output, expected): output == expected
def accepts_all(given, output, expected): return True
def reads_two(given, output, expected): return output.split()[1] != ""
'''
PAIRS = {"inputs": ["7", "5", "9"], "outputs": ["3 4", "2 3", "4 5"], "checker": "my_checkers.sums_to"}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_checkers.py").write_text(CHECKERS)
    monkeypatch.delitem(sys.modules, "my_checkers", raising=False)


def verdict(program: str, tests=PAIRS) -> str:
    logged = {}
    code_reward([f"```python\n{program}\n```"], [tests], log_extra=logged.__setitem__)
    return logged["code_verdict"][0]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print(0, input())", "passed 3 of 3"),
        ("print(3, 4)", "wrong answer on test 2 of 3"),
        ("n = int(input()); print(n - 1, n % 5 // 4 + 1)", "wrong answer on test 3 of 3"),
        ("print('many')", "wrong answer on test 1 of 3"),
        ("import sys; print(1, int(input()) - 1); sys.exit(1)", "exception on test 1 of 3"),
    ],
)
def test_a_checker_judges_the_output(program, expected):
    """Also of cases that run together, and only if the program ends well."""
    assert verdict(program) == expected


@pytest.mark.parametrize(
    ("checker", "program"),
    [
        ("accepts_all", "import os; os.write(1, b'\\xff')"),
        ("reads_two", "print(1)"),
    ],
)
def test_what_no_checker_can_read_is_wrong(checker, program):
    """What is no text, whatever the checker says, and what it raises an IndexError on."""
    assert verdict(program, {**PAIRS, "checker": f"my_checkers.{checker}"}) == "wrong answer on test 1 of 3"


def test_an_exception_on_an_output_is_wrong_and_named_once(caplog):
    warn_of_exception.cache_clear()
    with caplog.at_level(logging.WARNING):
        tests = {**PAIRS, "inputs": ["8", "5", "9"], "outputs": ["4 4", "2 3", "4 5"]}
        assert verdict("print(input())", tests) == "wrong answer on test 1 of 3"
        assert verdict("print(1, 2, 3)", tests) == "wrong answer on test 1 of 3"
    [raised] = [message for message in caplog.messages if "raised" in message]
    assert "'my_checkers.sums_to' raised ValueError" in raised


@pytest.mark.parametrize(
    ("checker", "message"),
    [
        ("my_checkers.rejects", "does not accept the input '7' with the expected output '3 4'"),
        ("my_checkers.forgets", "does not accept the input '7'"),
        ("my_checkers.breaks", "raised IndexError"),
        ("my_checkers.sum_to", "did you mean 'sums_to'"),
        ("my_chekers.sums_to", "defined in a module of"),
    ],
)
def test_a_wrong_checker_ends_the_run_before_it_begins(tmp_path, capsys, checker, message):
    tests = json.dumps({**PAIRS, "checker": checker})
    data = tiny.dataset().remove_columns("solution").add_column("tests", [tests] * 16)
    data.to_json("train.jsonl")
    recipe = tiny.recipe(tmp_path, reward_funcs=["code_reward"])
    assert main(["train", "--config", recipe, "--dry_run"]) == 2
    assert message in capsys.readouterr().err


def test_every_expected_output_is_checked():
    """Not the first one alone."""
    with pytest.raises(CheckerError, match="does not accept the input '9' with the expected output '4 4'"):
        parse_tests({**PAIRS, "outputs": ["3 4", "2 3", "4 4"]})


def test_a_checker_in_a_package_and_one_that_is_wrapped(tmp_path):
    assert verdict("print(input(), 0)", {**PAIRS, "checker": "my_checkers.cached"}) == "passed 3 of 3"
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "judges.py").write_text(CHECKERS)
    assert verdict("print(input(), 0)", {**PAIRS, "checker": "my_package.judges.sums_to"}) == "passed 3 of 3"


OTHERS = ["os.execl", "my_checkers.execl", "my_checkers.join", "subprocess.getoutput", "json.loads"]


@pytest.mark.parametrize("path", OTHERS)
def test_a_data_set_chooses_no_code_but_the_user_s(path):
    with pytest.raises(ValueError, match="a data set must not choose"):
        parse_tests({**PAIRS, "checker": path})


@pytest.mark.parametrize(
    "other",
    [
        {"fn_name": "f"},
        {"test": "assert f(1)", "outputs": []},
        {"test_list": ["assert f(1)"], "outputs": []},
        {"checker": 3},
    ],
)
def test_a_checker_is_for_tests_of_output(other):
    with pytest.raises(TestsError, match="for tests of output only"):
        parse_tests({**PAIRS, **other})
