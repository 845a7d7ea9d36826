"""
Mistakes that are silent in TRL, transformers and datasets, or that only our options have: `delta-trl train` and its
dry run name the option, and write nothing.
"""

import json

import pytest

from delta_trl.cli import main

from ..corpus import tiny


# words of the call, and what the message names; `dry` ones are found without weights, too
MISTAKES = {
    "--dataset_name unreadable.jsonl --reward_funcs math_reward": "golds",
    "--config list.yaml": "dataset_name",
    "--dataset_name questions.jsonl": "dataset_format",
    "--dataset_name asked": "dataset_format",
    "--dataset_name prompts.jsonl --reward_funcs math_reward": "'solution'",
    "--dataset_name blank.jsonl --reward_funcs math_reward": "'solution'",
    "--dataset_format gsm8k": "row 1",
    "--prompt_template Solve": "prompt_template",
    "--max_prompt_length 1": "max_prompt_length",
    "--conversational true": "chat template",
    "--per_device_train_batch_size 80": "16 rows",
    "--eval_strategy steps --eval_steps 1": "eval_dataset_name",
    "--eval_strategy steps --eval_steps 1 --eval_dataset_name blank.jsonl --reward_funcs math_reward": "blank.jsonl",
    "--reward_funcs math_rewrd": "'math_reward'",
    "--reward_funcs my_rewards.py": "a dotted path such as `my_module.my_name`",
    "--reward_funcs math_reward --reward_kwargs {math_reward:\x1f{},code_reward:\x1f{}}": "names ['code_reward'], ",
    "--temperature 0": "temperature=0.0: expected a number > 0",
    "--top_p 2": "top_p=2.0: expected a number in (0, 1]",
    "--epsilon=-0.2": "epsilon=-0.2: expected a number in [0, 1]",
    "--num_generations 0": "num_generations=0: expected a whole number >= 1",
    "--steps_per_generation 0": "steps_per_generation=0",
    "--gradient_accumulation_steps 0": "gradient_accumulation_steps=0",
    "--learning_rate=-1e-4": "learning_rate=-0.0001: expected a number >= 0",
    "--use_peft true --lora_r 0": "lora_r=0",
    "--config latin.yaml": "latin.yaml: cannot be read as YAML: 'utf-8' codec",
    "--config odd.yaml": "odd.yaml: cannot be read as YAML",
    "--model_name_or_path taken/checkpoint-7/note": "model_name_or_path='taken/checkpoint-7/note' is a file",
    "--config text.yaml": "'top_k=5': expected a mapping",
    "--generation_kwargs top_k=5": "'top_k=5': expected a mapping",
    "--generation_kwargs ": "'': expected a mapping",  # of a variable of the shell that is not set
    "--reward_weights 1 2": "reward_weights=[1.0, 2.0]: expected one for each",
    "--reward_funcs my_rewards.number": "Reward 'my_rewards.number' is 3: expected a function",
    "--vllm_mode colocated": "vllm_mode='colocated': expected one of",
    "--seed=-1": "seed=-1",
    "--dataset_train_split test": "dataset_train_split='test'",
    "--dataset_train_split train_sft": "dataset_train_split='train_sft'",
    "--use_lora true": "(did you mean 'use_peft'?)",
    "--max_seq_length 100": "(did you mean 'max_completion_length'?)",
    "--save_strategy best": "without evaluation there is no best checkpoint",
    "--load_best_model_at_end true --save_strategy best": "load_best_model_at_end=True",
    "--reward_funcs math_reward math_reward": "'math_reward' is named twice",
    "--reward_weights 0": "reward_weights=[0.0]",
    "--config modelless.yaml": "`model_name_or_path` is missing",
    "--config half.yaml": "num_generations=2.5: expected a whole number",
    "--loss_type gspo": "loss_type='gspo'",
    "--token_credit_kwargs {lamda_min:\x1f0.5}": "'lambda_min'",
    "--importance_sampling_level sequence": "importance_sampling_level",
    "--accelerator_config.split_batches true": "split_batches",
    "--lora_r 4": "use_peft",
    "--config empty.yaml": "max_steps=None",
    "--reward_funcs math_reward --reward_kwargs {math_reward:\x1f{timeout:\x1ffast}}": "timeout='fast': expected",
    "--reward_funcs my_rewards.Near --reward_kwargs {my_rewards.Near:\x1f{to:\x1ffew}}": "'to': 'few'}}: bad operand",
    "--reward_funcs think_format_reward": "conversational: true",
    "--use_peft true --lora_target_modules q_proj v_porj": "'v_proj'",
    "--model_name_or_path ../model": "no such file or folder in",
    "--model_name_or_path adapter": "set adapter_name_or_path='adapter'",
    "--adapter_name_or_path ./nowhere": "adapter_name_or_path='./nowhere': there is no such",
    "--model_name_or_path adapter --adapter_name_or_path lora": "set adapter_name_or_path='adapter'",
    "--model_name_or_path taken": "taken",
    "--environment_factory my_rewards.nothing": "Unknown environment_factory 'my_rewards.nothing'",
    "--adapter_name_or_path odd": "'v_porj'",
    "--adapter_name_or_path model": "Can't find 'adapter_config.json' at 'model'",
    "--adapter_name_or_path lora --lora_r 8": "lora_r=8 has no effect without use_peft. The adapter has options",
    "--adapter_name_or_path lora --use_peft true --lora_r 4": "lora_r=4, but adapter_name_or_path='lora' has 8",
    "--dataset_name lists.jsonl --reward_funcs math_reward": "['2', 'two'], of type list",
    "--dataset_name empty.jsonl": "it has no rows",
    "--dataset_name absent.jsonl": "absent.jsonl: cannot be read",
    "--dataset_name broken.jsonl": "broken.jsonl, line 2: not JSON, Expecting value at character 12",
    "--dataset_name my_rewards.py": "expected a file of .json",
    "--dataset_prompt_column prompt": "'column_mapping'",
    "--column_mapping {q": "column_mapping='{q': expected a mapping",
    "--column_mapping {qestion:\x1fprompt}": "'qestion' is not among its columns",
    "run.yaml": "--config run.yaml",
    "other.yml": "--config other.yml",
    "--config twice.yaml": "'max_steps' stands there 2 times",
    "--max_steps 0 --num_train_epochs 0": "num_train_epochs=0",
    "--use_vllm true --vllm_max_model_length 8": "vllm_max_model_length=8",  # leaves nothing for the completion
}
ONLY_TRAINING = {
    "--output_dir taken": "output_dir='taken'",
    "--report_to wandb": "wandb",  # it is not installed
}


MY_REWARDS = """
def near(completions, solutions=None, scale=1, **kwargs): ...
class Near:
    def __init__(self, to):
        self.to = -to
number = 3
pair = (near, near)
listed = [near]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as somebody has it who has begun."""
    folder = tmp_path_factory.mktemp("mistakes")
    tiny.recipe(folder, output_dir="run", model_name_or_path="model", dataset_name="train.jsonl")
    tiny.recipe(folder, "list", model_name_or_path="model", dataset_name=["train.jsonl", "more.jsonl"])
    tiny.recipe(folder, "empty", model_name_or_path="model", dataset_name="train.jsonl", max_steps=None)
    tiny.recipe(folder, "modelless", model_name_or_path=None, dataset_name="train.jsonl")
    tiny.recipe(folder, "half", model_name_or_path="model", dataset_name="train.jsonl", num_generations=2.5)
    tiny.recipe(folder, "text", model_name_or_path="model", dataset_name="train.jsonl", generation_kwargs="top_k=5")
    tiny.recipe(folder, "endless", model_name_or_path="model", dataset_name="train.jsonl", max_completion_length=None)
    (folder / "latin.yaml").write_bytes("output_dir: über".encode("latin-1"))
    (folder / "odd.yaml").write_text("max_steps: [1")
    rows = {
        "questions": '{"question": "1+1=", "answer": "2"}\n',
        "prompts": '{"prompt": "1+1="}\n',
        "blank": '{"prompt": "1+1=", "solution": " "}\n',
        "lists": '{"prompt": "1+1=", "solution": ["2", "two"]}\n',
        "unreadable": '{"prompt": "1+1=", "solution": "\\\\begin{tikzpicture}"}\n',
    }
    files = {f"{name}.jsonl": 8 * line for name, line in rows.items()}
    files |= {
        "empty.jsonl": "",
        "broken.jsonl": '{"prompt": "1+1="}\n{"prompt": \n',
        "adapter/adapter_config.json": "{}",
        "lora/adapter_config.json": json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 32, "lora_dropout": 0.05}),
        "odd/adapter_config.json": '{"peft_type": "LORA", "target_modules": ["v_porj"]}',
        "twice.yaml": (folder / "run.yaml").read_text() + "max_steps: 3\n",
        "my_rewards.py": MY_REWARDS,
        "one.jsonl": '{"prompt": "1+1=", "solution": "2"}\n',
        "taken/checkpoint-7/note": "",
        "asked/train.jsonl": 8 * rows["questions"],
    }
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.fixture
def call(folder, monkeypatch, capsys):
    """Exit code of `delta-trl train` in that folder, and what it printed."""
    monkeypatch.chdir(folder)

    def call(words, *flags):
        given = [word.replace("\x1f", " ") for word in words.split(" ")]
        given += [] if "--config" in given or "run.yaml" in given else ["--config", "run.yaml"]
        try:
            code = main(["train", *given, *flags])
        except SystemExit as end:  # of argparse
            code = end.code
        return code, "".join(capsys.readouterr())

    return call


def files(folder):
    return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


@pytest.mark.parametrize(
    ("words", "flags", "name"),
    [
        *((words, ["--dry_run"], name) for words, name in MISTAKES.items()),
        *((words, [], name) for words, name in ONLY_TRAINING.items()),
        ("--reward_funcs think_format_reward", [], "conversational: true"),
        ("--use_peft true --lora_target_modules q_proj v_porj", [], "'v_proj'"),
        ("--max_steps 1", ["--dry_run", "--num_processes", "0"], "expected 1 or more"),
    ],
)
def test_mistakes_are_named(folder, call, words, flags, name):
    before = files(folder)
    code, printed = call(words, *flags)
    assert code == 2
    assert "error: " in printed
    assert name in printed
    assert files(folder) == before


USERS_CODE = """
import torch
from delta_trl.credit import Credit, TokenCredit

def number(text):
    return float(text)

def fails(completions, **kwargs):
    return [number("right") for _ in completions]

def words(completions, **kwargs):
    return ["right" for _ in completions]

def nothing(completions, **kwargs):
    return [None for _ in completions]

class Fails(TokenCredit):
    def of_rollout(self, tokens):
        return Credit(tokens.advantages / tokens.advantage)

class Matrix(TokenCredit):
    def of_rollout(self, tokens):
        return Credit(torch.ones(2, 2))
"""
FAILURES = {
    "--reward_funcs users_code.fails": ["users_code.py, line 6, in number", "'fails' raised this on a batch of 8"],
    "--reward_funcs users_code.words": ["'words' returned ['right'"],
    "--token_credit users_code.Fails": ["no attribute 'advantage'", "line 19, in of_rollout", "The rule Fails()"],
    "--reward_funcs syntax.reward": ["syntax.py, line 1: def reward(:", "The reward 'syntax.reward' needs"],
}


@pytest.mark.parametrize(("words", "parts"), FAILURES.items())
def test_an_error_of_a_user_s_code_ends_with_its_line(folder, call, words, parts):
    (folder / "users_code.py").write_text(USERS_CODE)
    (folder / "syntax.py").write_text("def reward(:\n")
    code, printed = call(f"{words} --output_dir failed")
    assert code == 1
    message = printed[printed.rindex("delta-trl: error: ") :]
    for part in parts:
        assert part in message
    assert len(message.splitlines()) <= 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--token_credit users_code.Matrix", "Matrix.of_rollout returned weights of shape (2, 2)"),
        ("--reward_funcs users_code.nothing --max_steps 9", "nothing: 3 batches in a row got no reward"),
    ],
)
def test_what_a_user_s_code_returns_is_checked_in_one_line(folder, call, words, said):
    (folder / "users_code.py").write_text(USERS_CODE)
    code, printed = call(f"{words} --output_dir failed")
    assert code == 2
    assert said in printed.splitlines()[-1]


def test_an_error_of_a_user_s_module_says_where(folder, call):
    (folder / "raises.py").write_text("\nraise ValueError('no data')\n")
    code, printed = call("--reward_funcs raises.reward", "--dry_run")
    assert code == 2
    error, place, whose = printed[printed.index("delta-trl: error: ") :].splitlines()
    assert error.endswith("ValueError: no data")
    assert place.endswith("raises.py, line 2, in <module>: raise ValueError('no data')")
    assert "'raises.reward'" in whose


def test_the_plan_of_epochs_and_of_tools(call):
    """Each batch takes 2 of 16 prompts. A path names a tool, or several."""
    tools = "--tools my_rewards.pair my_rewards.listed --environment_factory my_rewards.near"
    _, printed = call(f"--max_steps 0 --num_train_epochs 1.5 {tools}", "--dry_run")
    for line in (
        "length           1.5 epochs of 8 rollout batches",
        "tools            near, near, near",
        "environments     my_rewards.near",
    ):
        assert f"{line}\n" in printed


def test_the_plan_of_steps_that_take_several_rollout_batches(call):
    _, printed = call("--max_steps 3 --gradient_accumulation_steps 4 --steps_per_generation 2", "--dry_run")
    assert "optimiser steps  0.5 per rollout batch, 32 completions each\n" in printed
    assert "length           3 optimiser steps, 6 rollout batches\n" in printed


WARNINGS = {
    "--top_p 0.7": "top_p=0.7",
    "--model_name_or_path away/model": "away/model: not on this machine",
    "--model_name_or_path away/model --use_peft true": "away/model: not on this machine",
    "--dataset_name away/data": "away/data: not on this machine",
    "--eval_strategy steps --eval_steps 1 --eval_dataset_name away/data": "away/data: not on this machine",
    "--model_name_or_path away/model --dataset_name away/data": "away/model, away/data: not on this machine",
    "--eval_dataset_name train.jsonl": "has no effect without eval_strategy",
    "--eval_steps 5": "eval_steps=5.0 has no effect without eval_strategy",
    "--vllm_max_model_length 8": "vllm_max_model_length=8 has no effect without use_vllm",
    "--dynamic_sampling_max_rounds 2": "has no effect without dynamic_sampling",
    "--save_strategy steps --save_steps 3 --num_iterations 2 --max_steps 4": "save_steps=3 lies within",
    "--reward_funcs my_rewards.near": "'solutions' (did you mean 'solution'?): 'my_rewards.near' gets its default",
}


@pytest.mark.parametrize(("words", "name"), WARNINGS.items())
def test_what_is_not_used_is_named(call, caplog, words, name):
    code, printed = call(words, "--dry_run")
    assert code == 0
    assert name in printed + caplog.text


@pytest.mark.parametrize(
    "words",
    [
        "--token_credit delta:lambda_max=1.5",
        "--reward_funcs math_reward tests.corpus.tiny.reward_letters",
        "--max_prompt_length 12 --column_mapping {solution:\x1fanswer}",
        "--use_peft true --lora_target_modules q_proj",
        "--adapter_name_or_path lora",
        "--adapter_name_or_path lora --use_peft true --lora_r 8",
        "--adapter_name_or_path away/adapter",
        "--dataset_train_split train[:8]",
        "--eval_strategy steps --eval_steps 1 --eval_dataset_name one.jsonl --per_device_eval_batch_size 4",
        "--reward_funcs math_reward --reward_kwargs {math_reward:\x1fnull}",
        "--gradient_checkpointing_kwargs {use_reentrant:\x1ffalse}",
        "--config endless.yaml",
        "--max_steps 2 --num_train_epochs 0",
    ],
)
def test_right_calls_pass_the_dry_run(call, words):
    code, printed = call(words, "--dry_run")
    assert code == 0, printed


def test_an_adapter_of_another_model_is_named(folder, call):
    (folder / "other").mkdir()
    (folder / "other/adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "elsewhere"}')
    code, printed = call("--adapter_name_or_path other", "--dry_run")
    assert code == 0
    assert "warning: 'other' was trained on 'elsewhere', and is loaded on 'model'" in printed


def test_another_rule_does_not_get_the_recipes_options(folder, call):
    tiny.recipe(folder, "own", model_name_or_path="model", dataset_name="train.jsonl", output_dir="run",
                token_credit_kwargs={"lambda_max": 1.5})  # fmt: skip
    assert "lambda_max=1.5" in call("--config own.yaml", "--dry_run")[1]
    for words in ("--token_credit none", "--token_credit=none", "--token-credit=none"):
        code, printed = call(f"--config own.yaml {words}", "--dry_run")
        assert code == 0
        assert "lambda_max" not in printed
    given = "--token_credit_kwargs {decay:\x1f8.0} --token_credit fipo"
    assert "FIPO(decay=8.0" in call(f"--config own.yaml {given}", "--dry_run")[1]
