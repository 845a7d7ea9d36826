"""How rollout batches and optimiser steps fit together, by TRL's arguments."""

from fractions import Fraction

from trl import GRPOConfig


def optimiser_steps_per_rollout(args: GRPOConfig) -> Fraction:
    """Optimiser steps that share a rollout batch; below 1 if a step takes several rollout batches."""
    return Fraction(args.steps_per_generation * args.num_iterations, args.gradient_accumulation_steps)


def refuse_too_few_rows(args: GRPOConfig, rows: int) -> None:
    """Raise `ValueError` if the rows do not fill a single rollout batch: TRL drops incomplete ones."""
    prompts = args.generation_batch_size // args.num_generations
    if rows < prompts:
        raise ValueError(
            f"{rows:,} rows are too few: a rollout batch takes {prompts:,} prompts ({args.generation_batch_size:,} "
            f"completions, num_generations={args.num_generations} of each), and an incomplete one is dropped, so that "
            "nothing would be trained. Give more rows, or lower per_device_train_batch_size or steps_per_generation."
        )
