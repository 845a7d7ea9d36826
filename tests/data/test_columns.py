import json
from datetime import datetime

import pytest
from datasets import Dataset

from delta_trl.data.columns import check_columns, check_reward_columns
from delta_trl.rewards import code_reward, get_reward


def test_what_a_reward_needs_is_there():
    def reward(prompts, completions, answer, tolerance=0.1, *, log_extra=None, **kwargs): ...

    check_reward_columns(["prompt", "answer"], [reward], ["mine"])
    with pytest.raises(ValueError, match=r"'mine': missing a required .*'answer'"):
        check_reward_columns(["prompt"], [reward], ["mine"])


def test_a_reward_takes_what_is_passed():
    with pytest.raises(ValueError, match=r"'mine'.*\*\*kwargs"):
        check_reward_columns(["prompt"], [lambda completions: []], ["mine"])


def check(rows, reward, name):
    check_columns(Dataset.from_list(rows), [reward], [name], "data.jsonl")


@pytest.mark.parametrize(
    ("tests", "kind"),
    [
        ([{"inputs": [[3]], "outputs": [3]}, {"inputs": [[2.5]], "outputs": [5.0]}], "double"),
        ([{"inputs": [datetime(2020, 1, 1)], "outputs": ["Wednesday"]}], "timestamp"),
        ([{"inputs": [[{"a": 1}]], "outputs": [1]}, {"inputs": [[{"b": 2}]], "outputs": [2]}], "struct"),
    ],
)  # fmt: skip
def test_tests_that_arrow_may_have_changed_are_refused(tests, kind):
    rows = [{"prompt": "1+1=", "tests": one} for one in tests]
    with pytest.raises(ValueError, match=rf"data\.jsonl, column 'tests': .*{kind}.*JSON text"):
        check(rows, code_reward, "code_reward")
    check(rows, lambda tests, **kwargs: None, "mine")  # of a user's own reward nothing is known
    check([{**row, "tests": json.dumps(row["tests"], default=str)} for row in rows], code_reward, "code_reward")


@pytest.mark.parametrize("gold", ["2024-01-05", 5, 0.5, None])
def test_golds_of_math_reward_are_texts_or_numbers(gold):
    check([{"prompt": "When?", "solution": gold}], get_reward("math_reward"), "math_reward")


def test_texts_that_were_read_as_dates_are_refused():
    with pytest.raises(ValueError, match=r"column 'solution': .*timestamp"):
        check([{"prompt": "When?", "solution": datetime(2024, 1, 5)}], get_reward("math_reward"), "math_reward")
