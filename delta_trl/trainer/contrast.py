"""Rewards as TRL uses them, and which groups of completions have contrast: rewards that differ."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from trl import GRPOTrainer


class KnowsRewards(GRPOTrainer):
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

        with rewards_by(self, keep):
            return super()._generate_and_score_completions(inputs)


@contextmanager
def rewards_by(trainer: GRPOTrainer, calculate: Callable[..., torch.Tensor]) -> Iterator[None]:
    """Let TRL get its rewards from a function in place of the method."""
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
    Whether the rewards of each group differ by more than rounding: their sums, or, where TRL normalises before it
    sums, those of any function that has a weight. Completions without a reward are left out, as TRL does.

    Args:
        trainer (`GRPOTrainer`): Whose groups and weights.
        rewards (`torch.Tensor` of shape `(completions, functions)`): Those of whole groups, one after the other.

    Returns:
        `torch.Tensor` of shape `(groups,)`.
    """
    groups, _ = _compared(trainer, rewards)
    missing = groups.isnan()
    highest = groups.masked_fill(missing, -torch.inf).amax(dim=1)
    lowest = groups.masked_fill(missing, torch.inf).amin(dim=1)
    return (highest - lowest > rounding_error(trainer, rewards)).any(dim=1)


def rounding_error(trainer: GRPOTrainer, rewards: torch.Tensor) -> torch.Tensor:
    """
    How far equal rewards may lie from each other and from their mean by rounding: in float32, `0.1 + 0.6` and
    `0.2 + 0.5` differ.

    Args:
        trainer (`GRPOTrainer`): Whose groups and weights.
        rewards (`torch.Tensor` of shape `(completions, functions)`): Those of whole groups, one after the other.

    Returns:
        `torch.Tensor` of shape `(groups, 1)`; where TRL normalises before it sums, with a column for each function
        that has a weight.
    """
    _, sizes = _compared(trainer, rewards)
    terms = trainer.num_generations + rewards.size(1)  # of the sums over functions and over the group
    return terms * torch.finfo(torch.float32).eps * sizes.amax(dim=1)


def _compared(trainer: GRPOTrainer, rewards: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What must differ within a group, NaN if missing, and its summands' size: (groups, completions, columns) each."""
    weights = trainer.reward_weights.to(rewards.device)
    if trainer.multi_objective_aggregation == "sum_then_normalize":
        values = total_rewards(trainer, rewards)[:, None]
        sizes = (rewards * weights).abs().nansum(dim=1, keepdim=True)
    else:
        values = rewards[:, weights != 0]
        sizes = values.abs().nan_to_num(0)
    shape = (-1, trainer.num_generations, values.size(1))
    return values.view(shape), sizes.view(shape)
