"""Rewards as TRL sums them, and which completions stand out from their group."""

import torch
from trl import GRPOTrainer
from trl.trainer.utils import nanstd

from ..rewards.registry import VERIFIED


# Of the largest sum of absolute terms in a group: rewards that differ by less are equal. A sum of eight terms in
# float32 loses at most so much. Sums of up to 16 terms and means of up to 256 rewards lost under 2 epsilons.
ROUNDING = 8 * torch.finfo(torch.float32).eps


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


def outcomes(trainer: GRPOTrainer, rewards: torch.Tensor) -> torch.Tensor:
    """
    The rewards that say whether a completion is right: those of verified functions with a weight if there are any,
    else all.

    Args:
        trainer (`GRPOTrainer`): Whose functions and weights.
        rewards (`torch.Tensor` of shape `(completions, functions)`): NaN where a function could not score.

    Returns:
        `torch.Tensor` of shape `(completions, functions)`: NaN in place of the others.
    """
    is_verified = torch.tensor([name in VERIFIED for name in trainer.reward_func_names])
    asked = (is_verified & (trainer.reward_weights.cpu() != 0)).to(rewards.device)
    return rewards.masked_fill(~asked, torch.nan) if asked.any() else rewards


def stands_out(trainer: GRPOTrainer, rewards: torch.Tensor) -> torch.Tensor:
    """
    Which completions have a reward that differs from their group's mean by more than rounding. In float32, `0.1 + 0.6`
    and `0.2 + 0.5` differ, and the mean of three times 0.1 is not 0.1. The advantages of all others are 0 but for that
    rounding. Where TRL normalises each function's rewards before it sums them, so does this function.

    Args:
        trainer (`GRPOTrainer`): Whose groups and weights.
        rewards (`torch.Tensor` of shape `(completions, functions)`): Those of whole groups, one after the other. NaN
            where a function could not score: left out, as TRL does.

    Returns:
        `torch.Tensor` of shape `(completions,)`.
    """
    if trainer.multi_objective_aggregation == "normalize_then_sum":
        groups = rewards.view(-1, trainer.num_generations, rewards.size(1))
        distances = beyond_rounding(groups, groups.abs())
        rewards = (distances / (nanstd(groups, dim=1, keepdim=True) + 1e-4)).view_as(rewards)
    terms = rewards * trainer.reward_weights.to(rewards.device)
    size = terms.abs().nansum(dim=1).view(-1, trainer.num_generations)
    total = total_rewards(trainer, rewards).view_as(size)
    distances = beyond_rounding(total, size)
    return (distances.abs() > 0).flatten()  # NaN is not


def beyond_rounding(values: torch.Tensor, size: torch.Tensor) -> torch.Tensor:  # (groups, num_generations, ...)
    """Distances of values from their group's mean, 0 where it is rounding of numbers as large as `size`."""
    distance = values - values.nanmean(dim=1, keepdim=True)
    return distance * (distance.abs() > ROUNDING * size.nan_to_num().amax(dim=1, keepdim=True))
