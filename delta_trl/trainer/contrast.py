"""Rewards as TRL uses them, and which groups of completions have contrast: rewards that differ."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from trl import GRPOTrainer


ROUNDING = 1e-5  # of the largest advantage in a group: what is smaller comes of rounding


class KeepsLastRewards(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that keeps the rewards from which TRL computes advantages, whichever class has computed them.

    Attributes:
        last_rewards (`torch.Tensor` of shape `(completions of all processes, functions)`):
            Those of the last rollout batch, or of the last one in an evaluation; NaN where there is none.
    """

    last_rewards = torch.zeros(0)

    def _generate_and_score_completions(self, inputs):
        calculate = self._calculate_rewards  # as the last subclass overrides it

        def keep(*args, **kwargs):
            self.last_rewards = calculate(*args, **kwargs)
            return self.last_rewards

        with calculating_rewards_with(self, keep):
            return super()._generate_and_score_completions(inputs)


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


def has_contrast(trainer: GRPOTrainer, rewards: torch.Tensor) -> torch.Tensor:
    """
    Whether the rewards of each group differ by more than the rounding of their sum (in float32, `0.1 + 0.6` and
    `0.2 + 0.5` differ). Where TRL normalises before it sums, those of any function that has a weight. Completions
    without a reward are left out, as TRL does.

    Args:
        trainer (`GRPOTrainer`): Whose groups and weights.
        rewards (`torch.Tensor` of shape `(completions, functions)`): Those of whole groups, one after the other.

    Returns:
        `torch.Tensor` of shape `(groups,)`.
    """
    weights = trainer.reward_weights.to(rewards.device)
    if trainer.multi_objective_aggregation == "sum_then_normalize":
        values = total_rewards(trainer, rewards)[:, None]
        rounding = rewards.size(1) * torch.finfo(torch.float32).eps * (rewards * weights).abs().nansum(dim=1)[:, None]
    else:
        values = rewards[:, weights != 0]
        rounding = torch.zeros_like(values)
    values, rounding = (each.view(-1, trainer.num_generations, values.size(1)) for each in (values, rounding))
    missing = values.isnan()
    highest = values.masked_fill(missing, -torch.inf).amax(dim=1)
    lowest = values.masked_fill(missing, torch.inf).amin(dim=1)
    return (highest - lowest > rounding.amax(dim=1)).any(dim=1)


def is_rounding(trainer: GRPOTrainer, advantages: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """
    Which of TRL's advantages (completions,) are 0 but for rounding: where the rewards (completions, functions) of a
    group are equal, or one is its group's mean.
    """
    size = advantages.view(-1, trainer.num_generations).abs()
    largest = size.amax(dim=1, keepdim=True)
    if trainer.multi_objective_aggregation == "normalize_then_sum":  # a group's sums may all be 0 but for rounding
        largest = largest.amax()
    return ((size <= ROUNDING * largest) | ~has_contrast(trainer, rewards)[:, None]).flatten()
