"""`delta-trl train --dry_run`: the plan of a run on a number of processes. Loads no weights, and checks local data."""

import argparse
import os
from fractions import Fraction

import torch
from transformers import AutoModelForCausalLM
from trl import ModelConfig, get_peft_config

from ..arguments.errors import mistakes
from ..trainer.checks import check_sampling, refuse_missing_targets
from ..trainer.config import DeltaGRPOConfig
from .dataset import Checked, load_checked
from .recipe import RunArguments, get_environments, get_tools, model_of_recipe, parse_recipe


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
        checked = check(run_args, training_args, model_args)
        plan = describe(training_args, checked)
    if os.environ.get("RANK", "0") != "0":
        return
    for name, value in plan.items():
        print(f"{name:<16} {value}")
    for warning in checked.warnings:
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


def check(run_args: RunArguments, args: DeltaGRPOConfig, model_args: ModelConfig) -> Checked:
    """
    Make the checks of training that need no weights, on what is on this machine. Raises `ValueError`, `OSError` or
    `ImportError` as training does.
    """
    source = model_of_recipe(model_args, args)
    source.local_files_only = True
    checked = load_checked(run_args, args, source)
    checked.warnings += check_sampling(args)
    get_tools(run_args)
    get_environments(run_args)
    adapter = get_peft_config(model_args)
    if adapter and checked.config:
        with torch.device("meta"):  # its modules, without weights
            model = AutoModelForCausalLM.from_config(checked.config, trust_remote_code=source.trust_remote_code)
        refuse_missing_targets(model, [adapter])
    return checked


def describe(args: DeltaGRPOConfig, checked: Checked) -> dict[str, str]:
    """The plan in numbers."""
    # below 1 if a step takes several rollout batches
    steps = Fraction(args.steps_per_generation * args.num_iterations, args.gradient_accumulation_steps)
    completions = args.generation_batch_size
    prompts = completions // args.num_generations
    batch = f"{prompts:,} prompts * {args.num_generations} responses = {completions:,} completions"
    if args.max_completion_length:
        batch += f", at most {completions * args.max_completion_length:,} tokens"
    per_step = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    if args.max_steps > 0:
        rollouts = args.max_steps / steps
        length = f"{args.max_steps:,} optimiser steps = {float(rollouts):g} rollout batches"
        length += f", {float(rollouts * prompts):,.0f} prompts (with repetition if the dataset has fewer)"
    else:
        rows = len(checked.datasets.get("train_dataset", ())) or "rows"
        length = f"{args.num_train_epochs:g} epochs: {rows} // {prompts} rollout batches each"
    plan = {
        "processes": str(args.world_size),
        "rollout batch": batch,
        "optimiser steps": f"{float(steps):g} per rollout batch, {per_step:,} completions each",
        "length": length,
        "token credit": repr(args.make_rule()),
    }
    if checked.absent:
        plan["not checked"] = f"{', '.join(checked.absent)}: not on this machine"
    return plan
