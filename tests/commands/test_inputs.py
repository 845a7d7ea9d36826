"""Which data a recipe trains and evaluates on."""

from types import SimpleNamespace

import pytest
from transformers.trainer_utils import IntervalStrategy

from delta_trl.arguments.errors import UsageError
from delta_trl.commands.inputs import load_prepared, sources
from delta_trl.commands.recipe import RunArguments

from ..corpus import tiny


TRAIN = {
    "dataset_name": "gsm8k",
    "dataset_config": "main",
    "dataset_format": "gsm8k",
    "column_mapping": {"q": "prompt"},
}
EVALUATES = SimpleNamespace(eval_strategy=IntervalStrategy.STEPS)


def test_other_data_to_evaluate_on_have_nothing_of_the_training_data():
    run_args = RunArguments(
        **TRAIN, reward_funcs=["math_reward"], eval_dataset_name="aime", eval_dataset_format="aime"
    )
    evaluated, split = sources(run_args, EVALUATES)["eval_dataset"]
    assert split == "test"
    assert evaluated.dataset_name == "aime"
    assert evaluated.dataset_config is None
    assert evaluated.dataset_format == "aime"
    assert evaluated.column_mapping == {}
    assert run_args.dataset_name == "gsm8k"


def test_splits_are_of_the_training_data():
    run_args = RunArguments(**TRAIN, reward_funcs=["math_reward"])
    assert sources(run_args, EVALUATES) == {"train_dataset": (run_args, "train"), "eval_dataset": (run_args, "test")}
    splits = {"dataset_train_split": "train[:9]", "dataset_test_split": "train[9:]"}
    run_args = RunArguments(**TRAIN, **splits, reward_funcs=["math_reward"])
    found = sources(run_args, EVALUATES)
    assert [split for _, split in found.values()] == ["train[:9]", "train[9:]"]
    without = SimpleNamespace(eval_strategy=IntervalStrategy.NO)
    assert sources(run_args, without) == {"train_dataset": (run_args, "train[:9]")}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.jsonl"
    tiny.dataset(4).to_json(path)
    return {"dataset_name": str(path), "reward_funcs": ["math_reward"]}


def test_a_file_is_one_split(file):
    with pytest.raises(UsageError, match="dataset_train_split='test'"):
        sources(RunArguments(**file, dataset_train_split="test"), EVALUATES)
    with pytest.raises(UsageError, match="no split to evaluate on"):
        sources(RunArguments(**file), EVALUATES)
    with_other_data = RunArguments(**file, dataset_train_split="train[:2]", eval_dataset_name="aime")
    assert sources(with_other_data, EVALUATES)["train_dataset"][1] == "train[:2]"


def test_data_are_prepared_as_the_recipe_says(file):
    options = {"system_prompt": "Add.", "prompt_template": "Q: {prompt}", "column_mapping": {"solution": "gold"}}
    [row] = load_prepared(RunArguments(**file, **options), "train[2:3]")
    system = {"role": "system", "content": "Add."}
    assert row == {"gold": "10", "prompt": [system, {"role": "user", "content": "Q: 8+2="}]}
    [row] = load_prepared(RunArguments(**file, conversational=True), "train[2:3]")
    assert row["prompt"] == [{"role": "user", "content": "8+2="}]
