import json
from datetime import datetime

import pytest
from datasets import Dataset

from delta_trl.data.columns import SAMPLE, check_columns, check_golds
from delta_trl.rewards import code_reward, get_reward


def check(rows, reward, name="mine"):
    check_columns(Dataset.from_list(rows), [reward], [name], "data.jsonl")


def test_what_a_reward_needs_is_there():
    def reward(prompts, completions, answer, tolerance=0.1, *, log_extra=None, **kwargs): ...

    check([{"prompt": "1+1=", "answer": "2"}], reward)
    with pytest.raises(ValueError, match=r"'mine': missing a required .*'answer'"):
        check([{"prompt": "1+1="}], reward)


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
    check(rows, lambda tests, **kwargs: None)  # of a user's own reward nothing is known
    check([{**row, "tests": json.dumps(row["tests"], default=str)} for row in rows], code_reward, "code_reward")


@pytest.mark.parametrize("gold", ["2024-01-05", 5, 0.5, None, datetime(2024, 1, 5), ["5"]], ids=str)
def test_golds_of_math_reward_are_texts_or_numbers(gold):
    rows = [{"prompt": "When?", "solution": gold}]
    if gold is None or isinstance(gold, (str, int, float)):
        check(rows, get_reward("math_reward"), "math_reward")
    else:  # Arrow has made something else of it
        with pytest.raises(ValueError, match="column 'solution'"):
            check(rows, get_reward("math_reward"), "math_reward")


UNREADABLE = {
    "math_reward": {"solution": r"\begin{tikzpicture}"},
    "code_reward": {"tests": "{}"},
}
READABLE = {"math_reward": {"solution": "5"}}
READABLE |= {"code_reward": {"tests": '{"inputs": ["1"], "outputs": ["1"]}'}}


@pytest.mark.parametrize("name", UNREADABLE)
def test_golds_that_no_answer_can_be_right_for(name):
    def found(unreadable, readable):
        rows = [{"prompt": "1+1="} | UNREADABLE[name]] * unreadable + [{"prompt": "1+1="} | READABLE[name]] * readable
        return check_golds(
            Dataset.from_list(rows), [get_reward(name), lambda completions, **kwargs: 1 / 0], "my.jsonl"
        )

    assert found(1, 9) == []
    (warning,) = found(2, 9)
    assert f"my.jsonl: {name} cannot use 2 of 11 golds" in warning
    assert str(next(iter(UNREADABLE[name].values())))[:10] in warning
    with pytest.raises(ValueError, match=f"{name} cannot use 3 of 3 golds"):
        found(3, 0)


def test_a_sample_of_the_golds_is_tried():
    class Reward:
        __name__ = "math_reward"

        def __call__(self, completions, **kwargs):
            asked.append(kwargs["solution"])
            return [0.0] * len(completions)

    asked = []
    check_golds(Dataset.from_dict({"solution": list(range(1050))}), [Reward()], "my.jsonl")
    assert len(asked[0]) <= SAMPLE
    assert asked[0][-1] > 1000
