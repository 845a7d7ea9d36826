"""Which data a recipe trains and evaluates on, and with which model."""

import json
from types import SimpleNamespace

import pytest
from peft import IA3Config, LoraConfig
from transformers.trainer_utils import IntervalStrategy

from delta_trl.arguments.errors import UsageError
from delta_trl.commands.inputs import load_prepared, read_inputs, refuse_other_options, sources
from delta_trl.commands.recipe import RunArguments, model_of_recipe, parse_recipe

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


def test_what_is_said_of_prompts_holds_for_both_data_sets(tmp_path):
    """Long ones are left out. Only the data to train on has to fill a rollout batch."""
    tiny.save(tmp_path / "model")
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = tiny.CHAT
    tokenizer.save_pretrained(tmp_path / "model")
    questions = {"train": ["1+1=", "1+1+1+1+1=", "2+2=", "3+3="], "eval": ["2+3=", "1+1+1+1+1="]}
    for name, column in questions.items():
        lines = [json.dumps({"question": question}) for question in column]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    recipe = tiny.recipe(
        tmp_path,
        eval_dataset_name=str(tmp_path / "eval.jsonl"),
        eval_strategy="steps",
        eval_steps=1,
        dataset_train_split="train[:3]",
        column_mapping={"question": "prompt"},
        eval_column_mapping={"question": "prompt"},
        prompt_template="add {prompt}",
        system_prompt="be brief",
        max_prompt_length=len("be briefadd 1+1="),
    )
    run_args, args, model_args = parse_recipe(["--config", recipe])
    datasets = read_inputs(run_args, args, model_of_recipe(run_args, model_args, args)).datasets

    def chat(question: str) -> list[dict]:
        return [{"role": "system", "content": "be brief"}, {"role": "user", "content": f"add {question}"}]

    assert datasets["train_dataset"]["prompt"] == [chat("1+1="), chat("2+2=")]
    assert datasets["eval_dataset"]["prompt"] == [chat("2+3=")]


def test_the_model_is_the_recipe_s(tmp_path):
    options = "--model_revision v2 --trust_remote_code true --adapter_name_or_path away/adapter"
    run_args, args, model_args = parse_recipe(["--config", tiny.recipe(tmp_path), *options.split()])
    source = model_of_recipe(run_args, model_args, args)
    assert source.model_name_or_path == str(tmp_path / "model")
    assert source.adapter_name_or_path == "away/adapter"
    assert (source.model_revision, source.trust_remote_code) == ("v2", True)


@pytest.mark.parametrize("given", ["all-linear", ".*q_proj"])
def test_a_pattern_of_modules_stays_one(tmp_path, given):
    words = ["--config", tiny.recipe(tmp_path), "--use_peft", "true", "--lora_target_modules", given]
    assert parse_recipe(words)[2].lora_target_modules == given


def test_a_file_may_give_a_list_where_one_value_will_do(tmp_path):
    _, args, _ = parse_recipe(["--config", tiny.recipe(tmp_path, report_to=["none"])])
    assert args.report_to == []


ADAPTER = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({}, None),
        ({"target_modules": ["v_proj", "q_proj"]}, None),
        ({"target_modules": "all-linear"}, None),
        ({"r": 4}, "lora_r=4, .* has 8"),
        ({"lora_alpha": 8}, "lora_alpha=8, .* has 16"),
        ({"lora_dropout": 0.0}, "lora_dropout=0.0, .* has 0.1"),
        ({"use_rslora": True}, "use_rslora=True, .* has False"),
        ({"use_dora": True}, "use_dora=True, .* has False"),
        ({"target_modules": ["q_proj"]}, "lora_target_modules={'q_proj'}, "),
    ],
    ids=str,
)
def test_a_run_goes_on_with_an_adapter_of_the_same_options(changed, named):
    def go_on():
        refuse_other_options("lora", LoraConfig(**ADAPTER), LoraConfig(**{**ADAPTER, **changed}))

    if not named:
        go_on()
        return
    with pytest.raises(UsageError, match=named):
        go_on()


def test_an_adapter_of_another_kind_has_no_option_of_lora():
    with pytest.raises(UsageError, match="lora_r=8, but adapter_name_or_path='scales' has None"):
        refuse_other_options("scales", IA3Config(), LoraConfig(**ADAPTER))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.jsonl"
    tiny.dataset(4).to_json(path)
    return {"dataset_name": str(path), "reward_funcs": ["math_reward"]}


def test_a_file_is_one_split(file):
    with pytest.raises(UsageError, match="dataset_train_split='test'"):
        sources(RunArguments(**file, dataset_train_split="test"), EVALUATES)
    with pytest.raises(UsageError, match=r"eval_strategy='steps', .* no split to evaluate on"):
        sources(RunArguments(**file), EVALUATES)
    with_other_data = RunArguments(**file, dataset_train_split="train[:2]", eval_dataset_name="aime")
    assert sources(with_other_data, EVALUATES)["train_dataset"][1] == "train[:2]"


def test_data_are_prepared_as_the_recipe_says(file, tmp_path):
    options = {"system_prompt": "Add.", "prompt_template": "Q: {prompt}", "column_mapping": {"solution": "gold"}}
    [row] = load_prepared(RunArguments(**file, **options), "train[2:3]")
    system = {"role": "system", "content": "Add."}
    assert row == {"gold": "10", "prompt": [system, {"role": "user", "content": "Q: 8+2="}]}
    [row] = load_prepared(RunArguments(**file, conversational=True), "train[2:3]")
    assert row["prompt"] == [{"role": "user", "content": "8+2="}]
    of_folder = RunArguments(**{**file, "dataset_name": str(tmp_path)}, dataset_config="mine")
    with pytest.raises(ValueError, match="'mine' not found"):  # there is no such configuration
        load_prepared(of_folder, "train")
