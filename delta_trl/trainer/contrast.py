"""Rewards as TRL uses them, and which groups of completions have contrast: rewards that differ."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from trl import GRPOTrainer


ROUNDING = 1e-5  # of the largest reward in a group: rewards that differ by less are equal


@contextmanager
def calculating_rewards_with(trainer: GRPOTrainer, calculate: Callable[..., torch.Tensor]) -> Iterator[None]:
    """Call a function in place of the trainer's `_calculate_rewards`, within the context."""
    own = vars(trainer).get("_calculate_rewards")
    trainer._calculate_rewards = calculate
    try:
        yield
    finally:
        del trainer._calculate_rewards
        if own is not None:
            trainer._calculate_rewards = own


def total_rewards(trainer: GRPOTrainer, rewards: torch.Tensor) -> torch.Tensor:
    """
    Rewards as TRL sums them, with the weights of the functions; NaN where none could score.

    Args:
        trainer (`GRPOTrainer`): Whose weights.
        rewards (`torch.Tensor` of shape `(completions, functions)`): NaN where a function could not score.

    Returns:
        `torch.Tensor` of shape `(completions,)`.
    """
    total = (rewards * trainer.reward_weights.to(rewards.device)).nansum(dim=1)
    return total.masked_fill(rewards.isnan().all(dim=1), torch.nan)


def stands_out(trainer: GRPOTrainer, rewards: torch.Tensor) -> torch.Tensor:
    """
    Which completions have a reward other than their group's mean, by more than rounding: in float32, `0.1 + 0.6` and
    `0.2 + 0.5` differ, and the mean of three times 0.1 is not 0.1. The advantages of all others are 0 but for that
    rounding. Where TRL normalises each function's rewards before it sums them, one function with a weight is enough.

    Args:
        trainer (`GRPOTrainer`): Whose groups and weights.
        rewards (`torch.Tensor` of shape `(completions, functions)`): Those of whole groups, one after the other. NaN
            where a function could not score: left out, as TRL does.

    Returns:
        `torch.Tensor` of shape `(completions,)`.
    """
    weights = trainer.reward_weights.to(rewards.device)
    if trainer.multi_objective_aggregation == "normalize_then_sum":
        values = rewards[:, weights != 0]
        size = values.abs()
    else:
        values = total_rewards(trainer, rewards)[:, None]
        size = (rewards * weights).abs().nansum(dim=1, keepdim=True)  # of all terms of the sum
    groups, size = (each.view(-1, trainer.num_generations, values.size(1)) for each in (values, size))
    largest = size.nan_to_num().amax(dim=1, keepdim=True)
    distance = (groups - groups.nanmean(dim=1, keepdim=True)).abs()
    return (distance > ROUNDING * largest).any(dim=2).flatten()  # NaN is not


def has_contrast(trainer: GRPOTrainer, rewards: torch.Tensor, counts: torch.Tensor | bool = True) -> torch.Tensor:
    """
    Which groups (groups,) have something to train: a completion that stands out, and that the loss counts.

    Args:
        trainer, rewards: As above.
        counts (`torch.Tensor` of shape `(completions,)`, *optional*): Which completions the loss counts.
    """
    return (stands_out(trainer, rewards) & counts).view(-1, trainer.num_generations).any(dim=1)
