import json
from datetime import datetime

import pytest
from datasets import Dataset

from delta_trl.data.columns import check_datasets
from delta_trl.rewards import code_reward

from ..corpus import tiny


@pytest.mark.parametrize("name", ["train_dataset", "eval_dataset"])
@pytest.mark.parametrize("rewards", [None, [tiny.reward_letters]])
def test_the_empty_one_of_several_datasets_is_named(name, rewards):
    datasets = {"train_dataset": tiny.dataset(2), "eval_dataset": tiny.dataset(1)}
    check_datasets(datasets, rewards)
    with pytest.raises(ValueError, match=f"{name} is empty"):
        check_datasets(datasets | {name: Dataset.from_dict({"prompt": []})}, rewards)


@pytest.mark.parametrize(
    ("prompts", "row"),
    [(["1+1=", None, "2+2="], 2), ([[{"role": "user", "content": "1+1="}], None], 2), ([None, "1+1="], 1)],
    ids=["text", "chat", "first"],
)
def test_a_missing_prompt_is_named(prompts, row):
    dataset = Dataset.from_dict({"prompt": prompts, "solution": ["2"] * len(prompts)})
    with pytest.raises(
        ValueError, match=f"train_dataset, row {row}, column 'prompt': expected a text or a list of .*None"
    ):
        check_datasets({"train_dataset": dataset}, [tiny.reward_letters])


@pytest.mark.parametrize(
    ("tests", "kind"),
    [
        ([{"inputs": [[3]], "outputs": [3]}, {"inputs": [[2.5]], "outputs": [5.0]}], "double"),
        ([{"inputs": [datetime(2020, 1, 1)], "outputs": ["Wednesday"]}], "timestamp"),
        ([{"inputs": [[{"a": 1}]], "outputs": [1]}, {"inputs": [[{"b": 2}]], "outputs": [2]}], "struct"),
    ],
)  # fmt: skip
def test_tests_that_arrow_may_have_changed_are_refused(tests, kind):
    rows = Dataset.from_dict({"prompt": ["1+1="] * len(tests), "tests": tests})
    with pytest.raises(ValueError, match=f"write the tests as JSON texts.*one type, here {kind}"):
        check_datasets({"train_dataset": rows}, [code_reward])
    check_datasets({"train_dataset": rows}, [lambda tests, **kwargs: None])
    texts = [json.dumps(one, default=str) for one in tests]
    check_datasets({"train_dataset": Dataset.from_dict({"prompt": rows["prompt"][:], "tests": texts})}, [code_reward])


@pytest.mark.parametrize(
    "tests", [{"inputs": [[3]], "outputs": [3]}, {"inputs": ["3"], "outputs": ["3"], "date": 0.5}]
)
def test_tests_that_arrow_leaves_as_they_are(tests):
    check_datasets({"train_dataset": Dataset.from_dict({"prompt": ["1+1="], "tests": [tests]})}, [code_reward])
