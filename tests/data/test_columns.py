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
