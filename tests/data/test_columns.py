import json
from datetime import datetime

import pytest
from datasets import Dataset, Features, Value

from delta_trl.data.columns import SAMPLE, check_columns, check_golds
from delta_trl.rewards import code_reward, get_reward


MATH = get_reward("math_reward")


def check(rows, reward, name="mine"):
    data = Dataset.from_list(rows) if isinstance(rows, list) else rows
    check_columns(data, [reward], [name], "data.jsonl")


def test_a_column_that_a_reward_requires_must_be_there():
    def reward(prompts, completions, answer, tolerance=0.1, *, log_extra=None, **kwargs): ...

    check([{"prompt": "1+1=", "answer": "2"}], reward)
    with pytest.raises(ValueError, match=r"'mine': missing a required .*'answer'"):
        check([{"prompt": "1+1="}], reward)


def test_tests_that_arrow_may_have_changed_are_refused():
    tests = {"inputs": [[3]], "outputs": [3]}
    rows = [{"prompt": "1+1=", "tests": tests}]
    with pytest.raises(ValueError, match=r"data\.jsonl, column 'tests': .*List.*JSON text"):
        check(rows, code_reward, "code_reward")
    check(rows, lambda tests, **kwargs: None)  # of a user's own reward nothing is known
    rows = [{"prompt": "1+1=", "tests": json.dumps(tests)}]
    check(rows, code_reward, "code_reward")


def test_golds_of_math_reward_are_texts_or_numbers():
    for gold in ("2024-01-05", 5, 0.5, None):
        check([{"prompt": "When?", "solution": gold}], MATH, "math_reward")
    for kind in ("int16", "int32", "uint64", "float32"):
        features = Features({"solution": Value(kind)})
        data = Dataset.from_dict({"solution": [5]}, features)
        check(data, MATH, "math_reward")
    data = Dataset.from_dict({"solution": [datetime(2024, 1, 5)]})  # Arrow has made something else of it
    with pytest.raises(TypeError, match=r"a gold in `solution` .*datetime"):
        check_golds(data, [MATH], "data.jsonl")


def test_whole_numbers_that_became_floats_are_refused():
    exact = [{"prompt": "1+1=", "solution": value} for value in (2.0**53 - 1, 0.5, None)]
    check(exact, MATH, "math_reward")
    for gold in (2.0**53, -1e30):
        rows = [*exact, {"prompt": "1+1=", "solution": gold}]
        with pytest.raises(ValueError, match=r"data\.jsonl, column 'solution': -?\d+ may have lost digits"):
            check(rows, MATH, "math_reward")


@pytest.mark.parametrize(
    ("name", "column", "unreadable", "readable"),
    [
        ("math_reward", "solution", r"\begin{tikzpicture}", "5"),
        ("code_reward", "tests", "{}", '{"inputs": ["1"], "outputs": ["1"]}'),
    ],
)
def test_golds_that_no_answer_can_be_right_for(name, column, unreadable, readable):
    def fails(completions, **kwargs):
        raise AssertionError("a user's own reward is not called")

    def found(wrong, right):
        golds = [unreadable] * wrong + [readable] * right
        data = Dataset.from_dict({column: golds})
        return check_golds(data, [get_reward(name), fails], "my.jsonl")

    assert found(1, 9) == []
    (warning,) = found(2, 9)
    assert f"my.jsonl: {name} cannot use 2 of 11 golds" in warning
    assert unreadable[:10] in warning
    with pytest.raises(ValueError, match=f"{name} cannot use 3 of 3 golds"):
        found(3, 0)


def test_a_sample_of_the_golds_is_tried():
    asked = []

    def math_reward(completions, solution):
        asked.extend(solution)
        return [0.0] * len(completions)

    data = Dataset.from_dict({"solution": list(range(1050))})
    check_golds(data, [math_reward], "my.jsonl")
    assert len(asked) <= SAMPLE
    assert asked[-1] > 1000
