"""`delta-trl train --dry_run`: the plan of a run on a number of processes. Loads no weights, and checks local data."""

import argparse
import os
from fractions import Fraction
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import ModelConfig, get_peft_config

from ..arguments.errors import mistakes
from ..data.columns import check_golds
from ..data.loading import local_format
from ..trainer import checks
from ..trainer.config import DeltaGRPOConfig
from .dataset import load_prepared, sources
from .recipe import (
    RunArguments,
    get_environments,
    get_rewards,
    get_tools,
    model_of_recipe,
    parse_recipe,
)


def main(args: list[str]) -> None:
    """
    Print the plan of a recipe, and warnings. Raises `UsageError` for a mistake in it, its data, or its rewards'
    options.
    """
    flags = argparse.ArgumentParser("delta-trl train", add_help=False, allow_abbrev=False)
    flags.add_argument("--dry_run", "--dry-run", action="store_true")
    flags.add_argument("--num_processes", "--num-processes", type=int, default=int(os.environ.get("WORLD_SIZE", 1)))
    given, args = flags.parse_known_args(args)
    if given.num_processes < 1:
        flags.error(f"--num_processes {given.num_processes}: expected 1 or more")
    run_args, training_args, model_args = parse_recipe(args, plan_config(given.num_processes))
    with mistakes():
        rows, warnings, absent = check(run_args, training_args, model_args)
        plan = describe(training_args, rows) | agents(run_args)
    if absent:
        plan["not checked"] = f"{', '.join(absent)}: not on this machine"
    if os.environ.get("RANK", "0") == "0":
        for name, value in plan.items():
            print(f"{name:<16} {value}")
        for warning in warnings:
            print(f"warning: {warning}")


def plan_config(num_processes: int) -> type[DeltaGRPOConfig]:
    """`DeltaGRPOConfig` as `num_processes` processes would build it, on a machine without their GPUs."""

    class PlannedConfig(DeltaGRPOConfig):
        # without these, TrainingArguments would start torch.distributed
        world_size = num_processes
        distributed_state = None
        _setup_devices = torch.device("cpu")
        _n_gpu = 0

        def __post_init__(self):
            asked = self.use_cpu
            self.use_cpu = True  # without a GPU, bf16 is refused unless this is set
            super().__post_init__()
            self.use_cpu = asked

    return PlannedConfig


def check(
    run_args: RunArguments, args: DeltaGRPOConfig, model_args: ModelConfig
) -> tuple[int | None, list[str], list[str]]:
    """
    Make the checks of training that need no weights, on what is on this machine.

    Returns:
        `tuple`: The number of rows to train on, `None` if they are not here; warnings; what is not here.

    Raises:
        ValueError, OSError, ImportError: As training does.
    """
    source = model_of_recipe(model_args, args)
    rewards = get_rewards(run_args)
    source.local_files_only = True
    warnings = checks.check_sampling(args)
    processor = config = rows = None
    absent = []
    try:
        processor, config = source.processor(), source.config()  # both, or none
    except (OSError, ValueError):  # not on this machine, or broken
        if Path(source.model_name_or_path).is_dir():
            raise
        absent.append(source.model_name_or_path)
    datasets = {}
    for title, (of, split) in sources(run_args, args).items():
        if Path(of.dataset_name).exists() or local_format(of.dataset_name):
            datasets[title] = load_prepared(of, args, rewards, split, processor)
            warnings += check_golds(datasets[title], rewards, of.dataset_name)
        else:
            absent.append(of.dataset_name)
    if "train_dataset" in datasets:
        rows = len(datasets["train_dataset"])
        checks.refuse_too_few_rows(args, rows)
    elif run_args.conversational:  # whether the tokenizer has a chat template can be told without the data
        datasets["train_dataset"] = Dataset.from_dict({"prompt": [[{"role": "user", "content": "a question"}]]})
    if config:
        warnings += checks.check_model(args, processor, config, source.model_name_or_path, datasets, rewards)
        if adapter := get_peft_config(model_args):
            with torch.device("meta"):  # its modules, without weights
                model = AutoModelForCausalLM.from_config(config, trust_remote_code=source.trust_remote_code)
            checks.refuse_missing_targets(model, [adapter])
    return rows, warnings, absent


def agents(run_args: RunArguments) -> dict[str, str]:
    """The tools and environments of a plan, by name. Raises `ValueError` or `ImportError` where there are none."""
    plan = {}
    if tools := get_tools(run_args):
        plan["tools"] = ", ".join(tool.__name__ for tool in tools)
    if get_environments(run_args):
        plan["environments"] = str(run_args.environment_factory)
    return plan


def describe(args: DeltaGRPOConfig, rows: int | None) -> dict[str, str]:
    """The plan in numbers; `rows` are those to train on."""
    # below 1 if a step takes several rollout batches
    steps = Fraction(args.steps_per_generation * args.num_iterations, args.gradient_accumulation_steps)
    completions = args.generation_batch_size
    prompts = completions // args.num_generations
    batch = f"{prompts:,} prompts * {args.num_generations} responses = {completions:,} completions"
    if args.max_completion_length:
        batch += f", at most {completions * args.max_completion_length:,} tokens"
    per_step = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    length = f"{args.num_train_epochs:g} epochs: {rows or 'rows'} // {prompts} rollout batches each"
    if args.max_steps > 0:
        rollouts = args.max_steps / steps
        length = f"{args.max_steps:,} optimiser steps = {float(rollouts):g} rollout batches"
        length += f", {float(rollouts * prompts):,.0f} prompts (with repetition if the dataset has fewer)"
    return {
        "processes": str(args.world_size),
        "rollout batch": batch,
        "optimiser steps": f"{float(steps):g} per rollout batch, {per_step:,} completions each",
        "length": length,
        "token credit": repr(args.make_rule()),
    }
