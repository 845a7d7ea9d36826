import pytest
from datasets import Dataset

from delta_trl.data.columns import check_datasets

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
