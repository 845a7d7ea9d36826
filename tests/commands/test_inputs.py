"""Which data a recipe trains and evaluates on."""

from types import SimpleNamespace

from transformers.trainer_utils import IntervalStrategy

from delta_trl.commands.inputs import sources
from delta_trl.commands.recipe import RunArguments


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


def test_a_test_split_is_of_the_training_data():
    run_args = RunArguments(**TRAIN, reward_funcs=["math_reward"])
    evaluated, split = sources(run_args, EVALUATES)["eval_dataset"]
    assert split == "test"
    assert evaluated == run_args
