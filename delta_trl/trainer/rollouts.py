"""How rollout batches, optimiser steps and checkpoints fit together, by TRL's arguments."""

import math
from collections.abc import Iterator
from fractions import Fraction

from trl import GRPOConfig


def optimiser_steps_per_rollout(args: GRPOConfig) -> Fraction:
    """Optimiser steps that share a rollout batch; below 1 if a step takes several rollout batches."""
    return Fraction(args.steps_per_generation * args.num_iterations, args.gradient_accumulation_steps)


def scores_rollouts(args: GRPOConfig) -> bool:
    """Whether `GRPOTrainer` scores every rollout batch itself, for old log-probabilities."""
    # the policy changes while the rollout batch is in use
    policy_moves = args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations) != 0
    return policy_moves or (args.use_vllm and args.vllm_importance_sampling_correction)


def refuse_too_few_rows(args: GRPOConfig, rows: int) -> None:
    """Raise `ValueError` if the rows do not fill a single rollout batch: TRL drops incomplete ones."""
    prompts = args.generation_batch_size // args.num_generations
    if rows < prompts:
        raise ValueError(
            f"{rows:,} rows are too few: a rollout batch takes {prompts:,} prompts ({args.generation_batch_size:,} "
            f"completions, num_generations={args.num_generations} of each), and an incomplete one is dropped, so that "
            "nothing would be trained. Give more rows, or lower per_device_train_batch_size or steps_per_generation."
        )


def warn_of_checkpoints_inside_a_rollout(args: GRPOConfig) -> Iterator[str]:
    """A warning for each option that saves checkpoints inside a rollout batch: a resumed run drops the rest of it."""
    steps = optimiser_steps_per_rollout(args)
    keeps_best = args.save_strategy == "best" or (args.save_strategy != "no" and args.metric_for_best_model)
    for name, applies, every in (
        ("save_steps", args.save_strategy == "steps", args.save_steps),
        ("eval_steps", args.eval_strategy == "steps" and keeps_best, args.eval_steps),
    ):
        given = f"{name}={every:g}" if every else ""
        if every and every < 1:  # a share of all steps; with epochs, their number is not known yet
            every = math.ceil(every * args.max_steps) if args.max_steps > 0 else None
            given += f", {every} steps,"
        if applies and every and int(every) % steps:
            best = " The best checkpoint is saved after the evaluation that finds it." if name == "eval_steps" else ""
            yield (
                f"{given} is not a multiple of the {float(steps):g} optimiser steps that share a rollout "
                "batch (steps_per_generation * num_iterations / gradient_accumulation_steps). TRL does not save a "
                "rollout batch in progress, so a run resumed from such a checkpoint drops the rest of it and diverges "
                f"from an uninterrupted run.{best}"
            )
