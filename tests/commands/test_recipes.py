"""Every recipe and accelerate config: the batch arithmetic, the plan of a dry run, and the launched processes."""

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env

from delta_trl.cli import main
from delta_trl.commands import dry_run
from delta_trl.commands.recipe import parse_recipe
from delta_trl.credit import DelTA, make_rule


RECIPES = sorted(str(path) for path in Path("recipes").glob("*/*.yaml"))
DOCS = Path("docs/recipes.md").read_text()
CONFIGS = sorted(str(path) for path in Path("accelerate_configs").glob("*.yaml"))


@dataclass(frozen=True)
class Arithmetic:
    processes: int
    prompts: int
    responses: int
    steps_per_rollout: int
    rollouts: int | None
    length: int


PAPER = {"processes": 8, "prompts": 128, "responses": 16, "steps_per_rollout": 4, "length": 20480}
ONE_GPU = {"processes": 1, "prompts": 32, "responses": 8, "steps_per_rollout": 4, "rollouts": 100, "length": 1024}
EXPECTED = {
    "recipes/Qwen3-8B-Base/deepmath_delta.yaml": Arithmetic(**PAPER, rollouts=220),
    "recipes/Qwen3-14B-Base/deepmath_delta.yaml": Arithmetic(**PAPER, rollouts=300),
    "recipes/Olmo3-7B-Base/deepmath_delta.yaml": Arithmetic(**PAPER, rollouts=220),
    "recipes/Qwen3-8B-Base/eurus_code_delta.yaml": Arithmetic(**PAPER, rollouts=None),
    "recipes/Qwen3-1.7B-Base/gsm8k_lora.yaml": Arithmetic(**ONE_GPU),
    "recipes/Qwen3-0.6B/gsm8k_full.yaml": Arithmetic(**ONE_GPU),
    "recipes/SmolLM2-135M/sums_full.yaml": Arithmetic(1, 8, 8, 4, 10, 40),
    "recipes/SmolLM2-135M/fruits_lora.yaml": Arithmetic(1, 8, 8, 4, 10, 40),
    "recipes/quickstart/addition.yaml": Arithmetic(1, 32, 8, 4, 20, 56),
}
PAPER_RECIPES = [path for path, expected in EXPECTED.items() if expected.processes == 8]


def arguments(recipe, processes=None, *flags):
    config = dry_run.plan_config(processes or EXPECTED[recipe].processes)
    return parse_recipe(["--config", recipe, *flags], config)


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_recipe_has_a_deprecated_option(recipe):
    with warnings.catch_warnings(action="error", category=FutureWarning):
        arguments(recipe)


# --- arithmetic ---


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipes_batches_are_those_of_its_table_and_its_dry_run(recipe, capsys):
    """The arguments of training, and what a dry run prints."""
    expected = EXPECTED[recipe]
    _, args, model_args = arguments(recipe)
    assert args.save_strategy == "no" or args.save_steps % expected.steps_per_rollout == 0

    words = ["--config", recipe, "--num_processes", str(expected.processes)]
    model = model_args.model_name_or_path
    if model.startswith("outputs/") and not Path(model).is_dir():  # `make language-model` builds it
        words += ["--model_name_or_path", "away/model"]
    assert main(["train", "--dry_run", *words]) == 0
    out = capsys.readouterr().out
    completions = expected.prompts * expected.responses
    length = " epochs"
    if expected.rollouts:
        length = f"{expected.rollouts * expected.steps_per_rollout:,} optimiser steps, {expected.rollouts} rollout"
    assert length in out
    assert f"{expected.prompts} prompts * {expected.responses} responses = {completions:,} completions" in out
    assert f"at most {completions * expected.length:,} tokens" in out
    assert f"{expected.steps_per_rollout} per rollout batch, {completions // 4} completions each" in out
    assert "warning" not in out


SETTINGS_OF_THE_PAPER = {
    "temperature": 1.0,
    "top_p": 1.0,
    "beta": 0.0,
    "entropy_coef": 0.0,
    "learning_rate": 1e-6,
    "weight_decay": 0.1,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "max_grad_norm": 1.0,
    "scale_rewards": "group",
    "vllm_max_model_length": 2048 + 20480,
    "vllm_importance_sampling_correction": False,
    "loss_type": "dapo",
    "epsilon": 0.2,
    "epsilon_high": 0.28,
    "delta": 10.0,
}


@pytest.mark.parametrize("recipe", PAPER_RECIPES)
def test_the_papers_recipes_have_its_settings(recipe):
    run_args, args, _ = arguments(recipe)
    assert {name: getattr(args, name) for name in SETTINGS_OF_THE_PAPER} == SETTINGS_OF_THE_PAPER
    assert args.optim.value.startswith("adamw")
    assert run_args.max_prompt_length == 2048
    assert make_rule(args.token_credit, args.token_credit_kwargs) == DelTA(
        refinement_steps=1, lambda_min=0.8, lambda_max=1.2
    )


BASELINES = {
    "DAPO": {"token_credit": "none"},
    "forking tokens": {"token_credit": "none", "top_entropy_quantile": 0.2},
    "SAPO": {"token_credit": "none", "loss_type": "sapo"},
    "FIPO": {"token_credit": "fipo"},
    "side weights": {"token_credit": "side_weights"},
}


def test_documented_baselines_differ_in_the_method_only():
    rows = re.findall(r"^\| ([\w ]+) \| `(--token_credit [^`]+)` \|", DOCS, flags=re.MULTILINE)
    assert {name for name, _ in rows} == BASELINES.keys()
    recipe = "recipes/Qwen3-8B-Base/deepmath_delta.yaml"
    _, delta, _ = arguments(recipe)
    for name, options in rows:
        _, args, _ = arguments(recipe, 8, *options.split())
        settings = vars(args)
        changed = {key: settings[key] for key in settings if repr(settings[key]) != repr(getattr(delta, key))}
        assert changed == BASELINES[name]


def test_the_dry_run_counts_the_processes_of_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    command = ["train", "--config", "recipes/quickstart/addition.yaml", "--dry_run"]
    assert main(command) == 0
    assert "processes        4" in capsys.readouterr().out
    assert main([*command[:-1], "--dry-run", "--num-processes", "2"]) == 0  # or those that are asked for
    assert "processes        2" in capsys.readouterr().out
    monkeypatch.setenv("RANK", "1")  # one rank speaks for all
    assert main(command) == 0
    assert capsys.readouterr().out == ""


# --- accelerate configs ---


@pytest.mark.parametrize("config", CONFIGS)
def test_accelerate_launches_what_the_config_says(config):
    name = Path(config).stem
    args = launch_command_parser().parse_args(["--config_file", config, "scripts/train.py"])
    args, _, _ = _validate_launch_command(args)
    args.deepspeed_fields_from_accelerate_config = ""  # set by `accelerate launch` itself, for its messages
    processes = {"cpu": 1, "single_gpu": 1, "multi_node": 16}.get(name, 2 if name.startswith("cpu") else 8)
    assert args.num_processes == processes
    assert bool(args.use_cpu) == name.startswith("cpu")
    assert not args.cpu  # the flag that makes accelerate start one process
    assert args.use_deepspeed == ("zero" in name or name == "multi_node")
    assert args.use_fsdp == ("fsdp" in name)
    if args.use_deepspeed and name != "cpu_zero3":
        _, environment = prepare_deepspeed_cmd_env(args)
        # DeepSpeed refuses a number that differs from the recipe's
        assert environment["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "auto"
    assert args.mixed_precision == ("no" if name.startswith("cpu") else "bf16")
