"""`delta-trl train --dry_run`: the plan of a run on a number of processes. Loads no weights, and checks local data."""

import argparse
import os
from collections.abc import Sized

import torch
from trl import get_peft_config

from ..arguments.errors import mistakes
from ..credit import make_rule
from ..evaluation.model import architecture_of
from ..scoring.models import steps_of_rollout
from ..trainer.checks import refuse_missing_targets
from ..trainer.config import DeltaGRPOConfig
from .inputs import read_inputs
from .recipe import RunArguments, get_environments, get_tools, model_of_recipe, parse_recipe


def main(args: list[str]) -> None:
    """
    Print the plan of a recipe, and warnings. Raises `UsageError` for a mistake in it, its data, or its rewards'
    options.
    """
    flags = argparse.ArgumentParser("delta-trl train", add_help=False, allow_abbrev=False)
    flags.add_argument("--dry_run", "--dry-run", action="store_true")
    flags.add_argument("--num_processes", "--num-processes", type=int, default=int(os.environ.get("WORLD_SIZE", 1)))
    plan_flags, args = flags.parse_known_args(args)
    if plan_flags.num_processes < 1:
        flags.error(f"--num_processes {plan_flags.num_processes}: expected 1 or more")
    run_args, training_args, model_args = parse_recipe(args, plan_config(plan_flags.num_processes))
    with mistakes():
        source = model_of_recipe(run_args, model_args, training_args)
        source.local_files_only = True
        asked = get_peft_config(model_args)
        inputs = read_inputs(run_args, training_args, source, asked)
        adapter = inputs.adapter or asked
        if inputs.config and adapter:
            with torch.device("meta"):  # its modules, without weights
                architecture = architecture_of(inputs.config)
                model = architecture.from_config(inputs.config, trust_remote_code=source.trust_remote_code)
            refuse_missing_targets(model, [adapter])
        plan = describe(training_args, inputs.datasets.get("train_dataset")) | agents(run_args)
    if inputs.absent:
        plan["not checked"] = f"{', '.join(inputs.absent)}: not on this machine"
    if os.environ.get("RANK", "0") == "0":
        for name, value in plan.items():
            print(f"{name:<16} {value}")
        for warning in inputs.warnings:
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
            self.use_cpu: bool = True  # without a GPU, bf16 is refused unless this is set
            super().__post_init__()

    return PlannedConfig


def agents(run_args: RunArguments) -> dict[str, str]:
    """The tools and environments of a plan, by name. Raises `ValueError` or `ImportError` where there are none."""
    plan = {}
    if tools := get_tools(run_args):
        plan["tools"] = ", ".join(tool.__name__ for tool in tools)
    if get_environments(run_args):
        plan["environments"] = str(run_args.environment_factory)
    return plan


def describe(args: DeltaGRPOConfig, rows: Sized | None) -> dict[str, str]:
    """The plan in numbers; `rows` are those to train on, if they are here."""
    steps = steps_of_rollout(args)
    completions = args.generation_batch_size
    prompts = completions // args.num_generations
    batch = f"{prompts:,} prompts * {args.num_generations} responses = {completions:,} completions"
    if args.max_completion_length:
        batch += f", at most {completions * args.max_completion_length:,} tokens"
    per_step = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    length = f"{args.num_train_epochs:g} epochs"
    if rows is not None:
        length += f" of {len(rows) // prompts:,} rollout batches"
    if args.max_steps > 0:
        length = f"{args.max_steps:,} optimiser steps, {args.max_steps / steps:g} rollout batches"
    return {
        "processes": str(args.world_size),
        "rollout batch": batch,
        "optimiser steps": f"{steps:g} per rollout batch, {per_step:,} completions each",
        "length": length,
        "token credit": repr(make_rule(args.token_credit, args.token_credit_kwargs)),
    }
