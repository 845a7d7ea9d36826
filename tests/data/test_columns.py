import json
from datetime import datetime
from functools import partial

import pytest
import trl.rewards
from datasets import Dataset, Features, Value

from delta_trl.data.columns import SAMPLE, check_columns, check_golds, check_prompt_column
from delta_trl.rewards import MathReward, code_reward, get_reward


MATH = get_reward("math_reward")


def check(rows, reward, name="mine"):
    data = Dataset.from_list(rows) if isinstance(rows, list) else rows
    return check_columns(data, [reward], [name], "data.jsonl")


def test_a_column_that_a_reward_requires_must_be_there():
    def reward(prompts, completions, answer, tolerance=0.1, *, log_extra=None, **kwargs): ...

    check([{"prompt": "1+1=", "answer": "2"}], reward)
    with pytest.raises(ValueError, match=r"'mine': missing a required .*'answer'"):
        check([{"prompt": "1+1="}], reward)


def test_rewards_get_all_that_trl_passes():
    def reward(prompts, completions, completion_ids, trainer_state, log_extra, log_metric): ...

    check([{"prompt": "1+1="}], reward)


def takes_prompt(prompt, **kwargs): ...


def takes_completion(completion, **kwargs): ...


@pytest.mark.parametrize("reward", [takes_prompt, takes_completion])
def test_columns_that_trl_keeps_from_rewards_are_not_there(reward):
    with pytest.raises(ValueError, match="'mine': missing a required"):
        check([{"prompt": "1+1=", "completion": "2"}], reward)


def test_a_parameter_with_nearly_the_name_of_a_column_is_named():
    """Unless it is bound, or the column is taken, too."""

    def reward(completions, answers="1", **kwargs): ...

    def takes_both(completions, answer, answers="1", **kwargs): ...

    rows = [{"prompt": "1+1=", "answer": "2"}]
    [warning] = check(rows, reward)
    assert "no column 'answers' (did you mean 'answer'?): 'mine' gets its default" in warning
    assert check(rows, partial(reward, answers="1")) == []
    assert check(rows, takes_both) == []


def test_tests_that_arrow_may_have_changed_are_refused():
    tests = {"inputs": [[3]], "outputs": [3]}
    rows = [{"prompt": "1+1=", "tests": tests}]
    with pytest.raises(ValueError, match=r"data\.jsonl, column 'tests': .*List.*JSON text"):
        check(rows, code_reward, "code_reward")
    check(rows, lambda tests, **kwargs: None)  # of a user's own reward nothing is known
    for kind in ("string", "large_string"):
        features = Features({"tests": Value(kind)})
        check(Dataset.from_dict({"tests": [json.dumps(tests)]}, features), code_reward, "code_reward")
    check([{"tests": None}], code_reward, "code_reward")


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
    exact = [{"prompt": "1+1=", "solution": value} for value in (2.0**53 - 1, 0.5, None)] * SAMPLE
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
        golds = [readable] * right + [unreadable] * wrong
        data = Dataset.from_dict({column: golds})
        return check_golds(data, [fails, get_reward(name), fails], "my.jsonl")

    assert found(1, 9) == []
    (warning,) = found(2, 9)
    assert f"my.jsonl: {name} cannot use 2 of 11 golds" in warning
    assert f"such as {unreadable!r}: " in warning
    with pytest.raises(ValueError, match=f"{name} cannot use 3 of 3 golds"):
        found(3, 0)


@pytest.mark.parametrize("name", ["math_reward", "code_reward", "accuracy_reward"])
def test_users_may_give_their_rewards_the_names_of_others(name):
    def fails(completions, answer, **kwargs):
        raise AssertionError("a user's own reward is not called")

    fails.__name__ = name
    rows = [{"prompt": "1+1=", "answer": "2"}]
    assert check(rows, fails, name) == []
    assert check_golds(Dataset.from_list(rows), [fails], "my.jsonl") == []


def test_golds_of_every_reward_are_tried():
    tests = '{"inputs": ["1"], "outputs": ["1"]}'
    golds = {"solution": [r"\begin{tikzpicture}"] * 2 + ["5"] * 7, "tests": ["{}"] * 3 + [tests] * 6}
    rewards = [MATH, code_reward]
    of_math, of_code = check_golds(Dataset.from_dict(golds), rewards, "my.jsonl")
    assert "math_reward cannot use 2 of 9" in of_math
    assert "code_reward cannot use 3 of 9" in of_code
    assert check_golds(Dataset.from_dict(golds | {"solution": ["5"] * 9}), rewards, "my.jsonl") == [of_code]


@pytest.mark.parametrize("name", ["think_format_reward", "accuracy_reward", "reasoning_accuracy_reward"])
def test_rewards_of_trl_that_read_chats_need_chats(name):
    reward = getattr(trl.rewards, name)
    texts = Dataset.from_list([{"prompt": "1+1=", "solution": "2"}])
    with pytest.raises(ValueError, match=rf"my\.jsonl: the reward '{name}' reads chats"):
        check_golds(texts, [reward], "my.jsonl")
    chats = Dataset.from_list([{"prompt": [{"role": "user", "content": "1+1="}], "solution": "2"}])
    assert check_golds(chats, [reward], "my.jsonl") == []


def test_a_sample_of_the_golds_is_tried():
    asked = []

    class Asks(MathReward):
        def __call__(self, completions, solution):
            asked.extend(solution)
            return [0.0] * len(completions)

    data = Dataset.from_dict({"solution": list(range(1050))})
    check_golds(data, [Asks()], "my.jsonl")
    assert check_golds(data.select([]), [Asks()], "my.jsonl") == []
    assert len(asked) <= SAMPLE
    assert asked[-1] > 1000


@pytest.mark.parametrize("kind", [None, "numpy", "torch"])
def test_prompts_are_checked_whatever_the_format_of_a_dataset(kind):
    chat = [{"role": "user", "content": "1+1="}]
    data = Dataset.from_dict({"prompt": [chat, chat]})
    check_prompt_column(data.with_format(kind), "my.jsonl")


def test_prompts_that_a_transform_makes_are_not_looked_at():
    data = Dataset.from_dict({"prompt": [1, 2]})
    made = data.with_transform(lambda rows: {"prompt": [f"{number}+1=" for number in rows["prompt"]]})
    check_prompt_column(made, "my.jsonl")
    with pytest.raises(ValueError, match="row 1, column 'prompt'"):
        check_prompt_column(data, "my.jsonl")
