"""
`delta-trl train --dry-run`: the plan of a run on a number of processes. Loads no weights, and checks local data.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoConfig
from trl import ModelConfig

from ..arguments.options import Options
from ..data.columns import check_datasets
from ..data.loading import drop_long_prompts
from ..evaluation.generation import ModelSource
from ..trainer import checks
from ..trainer.config import DeltaGRPOConfig
from ..trainer.credit_rule import choose_rule
from ..trainer.rollouts import (
    optimiser_steps_per_rollout,
    refuse_too_few_rows,
)
from .dataset import evaluation_source, load_prepared
from .model import model_source
from .recipe import RecipeParser, RunArguments, UsageError, get_rewards


# Hidden sizes of the recipes' models, so that planning needs no download
HIDDEN_SIZES = {
    "Qwen/Qwen3-0.6B": 1024,
    "Qwen/Qwen3-1.7B-Base": 2048,
    "Qwen/Qwen3-8B-Base": 4096,
    "Qwen/Qwen3-14B-Base": 5120,
    "allenai/Olmo-3-1025-7B": 4096,
}


@dataclass(frozen=True)
class Plan:
    """
    What a run does, in numbers.

    Args:
        prompts_per_rollout: of a rollout batch, over all processes.
        completions_per_step: completions of each optimiser step, over all processes.
        optimiser_steps_per_rollout: a fraction if TRL starts a rollout batch in the middle of an optimiser step.
        rollouts: rollout batches of the run, or `None` if epochs decide.
        cache_gib: memory of the hidden states that one process keeps at most, in GiB; 0 if none are kept, `None` if
            their size is not known.
        warnings: settings that are probably mistakes.
    """

    prompts_per_rollout: int
    completions_per_step: int
    optimiser_steps_per_rollout: float
    rollouts: float | None
    cache_gib: float | None
    warnings: tuple[str, ...]


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


def make_plan(args: DeltaGRPOConfig, hidden_size: int | None) -> Plan:
    """
    The plan of a run.

    Args:
        args (`DeltaGRPOConfig`): As `plan_config` makes them.
        hidden_size (`int` or `None`): Of the model, `None` if it is not known.

    Raises:
        ValueError: If completions have no longest length, with which the plan is made.
    """
    if args.max_completion_length is None:
        raise ValueError("max_completion_length is not set: a plan needs the length of the longest completion.")
    steps = optimiser_steps_per_rollout(args)
    completions = args.generation_batch_size
    completions_per_step = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    needs_states = choose_rule(None, args).requirements().hidden_states
    keeps = needs_states and args.hidden_state_cache != "recompute"
    cached = completions // args.world_size * args.max_completion_length if keeps else 0
    bytes_each = 2 if args.bf16 or args.fp16 else 4
    return Plan(
        prompts_per_rollout=completions // args.num_generations,
        completions_per_step=completions_per_step,
        optimiser_steps_per_rollout=float(steps),
        rollouts=float(args.max_steps / steps) if args.max_steps > 0 else None,
        cache_gib=cached * hidden_size * bytes_each / 2**30 if hidden_size else None if cached else 0.0,
        warnings=tuple(_warnings(args, steps, completions_per_step)),
    )


def _warnings(args: DeltaGRPOConfig, steps: Fraction, completions_per_step: int) -> Iterator[str]:
    if args.use_vllm and args.vllm_importance_sampling_correction:
        yield (
            "vllm_importance_sampling_correction is on (TRL's default): losses are also weighted by the ratio of "
            "training to sampling probabilities, which the paper does not do."
        )
    micro_batches = args.steps_per_generation * args.num_iterations
    if micro_batches % args.gradient_accumulation_steps and args.gradient_accumulation_steps % micro_batches:
        yield (
            f"{float(steps):g} optimiser steps per rollout batch: some steps mix two rollout batches. Choose "
            f"gradient_accumulation_steps as a divisor of {micro_batches} (steps_per_generation * num_iterations)."
        )
    if args.save_strategy == "steps" and args.save_steps >= 1 and args.save_steps % steps:
        yield (
            f"save_steps={args.save_steps:g} is not a multiple of the {float(steps):g} optimiser steps that share a "
            "rollout batch: a run resumed from such a checkpoint drops the rest of the rollout batch."
        )
    prompts = completions_per_step / args.num_generations
    if prompts < 2:
        yield (
            f"{prompts:g} prompts per optimiser step: its gradient is that of a single group of responses. Raise "
            "per_device_train_batch_size or gradient_accumulation_steps (and steps_per_generation with it)."
        )
    if args.max_steps > 0 and args.max_steps % steps:
        yield f"max_steps={args.max_steps} ends inside a rollout batch of {float(steps):g} optimiser steps."


def hidden_size(model_args: ModelConfig, trust_remote_code: bool = False) -> int | None:
    """The model's hidden size: from the list above for the recipes' models, else from config.json, else `None`."""
    name = model_args.model_name_or_path
    if name in HIDDEN_SIZES:
        return HIDDEN_SIZES[name]
    try:
        config = AutoConfig.from_pretrained(
            name, revision=model_args.model_revision, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError):
        return None
    return config.get_text_config().hidden_size


def describe(plan: Plan, run_args: RunArguments, args: DeltaGRPOConfig, model_args: ModelConfig) -> str:
    """The plan as text."""
    kind = "LoRA" if model_args.use_peft else "all weights"
    options = ", ".join(f"{name} {value}" for name, value in (args.token_credit_kwargs or {}).items())
    steps = f"{plan.optimiser_steps_per_rollout:g}"
    if plan.rollouts:
        length = f"{args.max_steps:,} optimiser steps = {plan.rollouts:g} rollout batches"
        prompts = f"{plan.rollouts * plan.prompts_per_rollout:,.0f} prompts"
        length += f", {prompts} (with repetition if the dataset has fewer, but {plan.prompts_per_rollout:,} or more)"
    else:
        length = (
            f"{args.num_train_epochs:g} epochs: rows // {plan.prompts_per_rollout} rollout batches each, "
            f"{steps} optimiser steps per rollout batch"
        )
    if plan.cache_gib == 0:
        cache = "none kept"
    elif plan.cache_gib is None:
        cache = f"unknown: no hidden size for {model_args.model_name_or_path} (its config.json cannot be read)"
    else:
        per_thousand = plan.cache_gib * 1000 / args.max_completion_length
        cache = (
            f"{plan.cache_gib:.2f} GiB per process if every completion has {args.max_completion_length:,} tokens; "
            f"{per_thousand:.2f} GiB per 1,000 tokens of mean length"
        )
        places = {"auto": "device memory, else main memory, else recomputed", "device": "device", "cpu": "main memory"}
        cache += f"; {places[args.hidden_state_cache]}"
    generation = f"vLLM, {args.vllm_mode}" if args.use_vllm else "transformers"
    weights = args.reward_weights or [1.0] * len(run_args.reward_funcs)
    rewards = [
        name if weight == 1 else f"{weight:g} * {name}"
        for name, weight in zip(run_args.reward_funcs, weights, strict=True)
    ]
    rows = {
        "model": f"{model_args.model_name_or_path} ({kind})",
        "data": f"{run_args.dataset_name}, rewards {', '.join(rewards)}",
        "processes": f"{args.world_size}",
        "generation": f"{generation}, temperature {args.temperature:g}, top-p {args.top_p:g}",
        "rollout batch": f"{plan.prompts_per_rollout:,} prompts * {args.num_generations} responses = "
        f"{args.generation_batch_size:,} completions, at most "
        f"{args.generation_batch_size * args.max_completion_length:,} tokens",
        "optimiser steps": f"{steps} per rollout batch, {plan.completions_per_step:,} completions each "
        f"({args.per_device_train_batch_size} per device * {args.world_size} * {args.gradient_accumulation_steps} "
        "accumulated)",
        "length": length,
        "learning rate": f"{args.learning_rate:g}, {args.lr_scheduler_type.value}, "
        f"{args.warmup_steps:g} warm-up steps, weight decay {args.weight_decay:g}",
        "loss": f"{args.loss_type}, beta {args.beta:g}, top entropy {args.top_entropy_quantile:g}",
        "token credit": args.token_credit + (f", {options}" if options else ""),
        "hidden states": cache,
    }
    lines = [f"{name:<16} {value}" for name, value in rows.items()]
    lines += [f"warning: {warning}" for warning in plan.warnings]
    if model_args.use_peft and model_args.lora_dropout > 0:
        lines.append(
            f"warning: lora_dropout={model_args.lora_dropout:g} (TRL's default is 0.05): the policy that is trained "
            "differs from the one that sampled. Set lora_dropout to 0."
        )
    return "\n".join(lines)


def check_data(run_args: RunArguments, args: DeltaGRPOConfig, rewards: list[Callable]) -> dict[str, Dataset | None]:
    """
    Local data to train and to evaluate on; `None` if it is not local. Raises `ValueError` and `OSError` as training
    does for invalid rows, and for too few.
    """
    data = evaluated = None
    if Path(run_args.dataset_name).exists():
        data = load_prepared(run_args, rewards, run_args.dataset_train_split)
    source = evaluation_source(run_args, args)
    if source is not None and source is not run_args and Path(source.dataset_name).exists():
        evaluated = load_prepared(source, rewards, run_args.dataset_test_split)
    if data is not None:
        refuse_too_few_rows(args, len(data))
    datasets = {"train_dataset": data, **checks.named(evaluated)}
    check_datasets(datasets, rewards)
    return datasets


def check_model(
    run_args: RunArguments,
    args: DeltaGRPOConfig,
    source: ModelSource,
    datasets: dict[str, Dataset | None],
    rewards: list[Callable],
) -> list[str]:
    """Raise `ValueError` and return warnings as training does, if tokenizer and configuration are on this machine."""
    if datasets["train_dataset"] is None and run_args.conversational:  # the data is not local
        datasets["train_dataset"] = Dataset.from_dict({"prompt": [[{"role": "user", "content": "a question"}]]})
    try:
        processor, config = source.processor(), source.config()
    except OSError:
        if Path(source.name).is_dir():
            raise
        return []  # not on this machine
    if (limit := run_args.max_prompt_length) is not None:
        tokenizer, template = source.tokenizer(), args.chat_template_kwargs
        datasets = {
            name: data and drop_long_prompts(data, tokenizer, limit, name, template) for name, data in datasets.items()
        }
    return checks.check_model(args, processor, config, source.name, datasets, rewards)


def main(options: Options, num_processes: int) -> None:
    """Print the plan of a recipe. Raises `UsageError` for a mistake in it, its data, or its rewards' options."""
    run_args, training_args, model_args = RecipeParser(plan_config(num_processes)).parse(options)
    try:
        rewards = get_rewards(run_args)
        datasets = check_data(run_args, training_args, rewards)
        source = model_source(model_args, training_args, local_files_only=True)
        warnings = check_model(run_args, training_args, source, datasets, rewards)
        plan = make_plan(training_args, hidden_size(model_args, training_args.trust_remote_code))
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(str(error)) from error
    print(describe(plan, run_args, training_args, model_args))
    for warning in warnings:
        print(f"warning: {warning}")
