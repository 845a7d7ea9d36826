"""Within the group of responses to one prompt: GRPO's advantages, and DelTA's contrast of each group separately."""

import math
from contextlib import nullcontext
from typing import Any

import torch

from .coefficients import contrast_credit, divide_by_mean, split_sides
from .distributed import all_reduce, alone
from .gradients import IndexableGradients
from .tokens import Credit


def group_advantages(rewards: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:  # (B,), (B,) -> (B,)
    """
    (r - mean) / (std + 1e-4) over each group, as TRL's GRPO computes it. 0 where a reward is NaN, and where all of its
    group are equal (which differ from their mean by rounding).
    """
    advantages = torch.zeros_like(rewards)
    for group in groups.unique():
        inside = (groups == group) & ~rewards.isnan()
        r = rewards[inside]
        if len(r.unique()) > 1:
            advantages[inside] = (r - r.mean()) / (r.std() + 1e-4)
    return advantages


def group_credit(
    gradients: IndexableGradients,
    advantages: torch.Tensor,
    groups: torch.Tensor,
    n_groups: int,
    *,
    lambda_min: float = 0.8,
    lambda_max: float = 1.2,
    normalize: bool = True,
    **options: Any,
) -> Credit:
    """
    The ablation that contrasts winners and losers of the same prompt only: [`contrast_credit`] with centroids and
    temperatures of each group. λ is normalised over the whole batch. Only groups whose tokens are spread over several
    ranks need sums over ranks.

    Args:
        gradients (`IndexableGradients`): Of N tokens.
        advantages (`torch.Tensor` of shape `(N,)`): Advantage of each token's response.
        groups (`torch.Tensor` of shape `(N,)`): Group of each token, 0 to `n_groups - 1`, the same on all ranks.
        n_groups (`int`): Number of groups over all ranks.
        **options: Those of [`contrast_credit`].

    Returns:
        [`Credit`]: Weights of shape `(N,)`, float32; within a group without contrast, all tokens with A ≠ 0 have
        the middle of the range. Neutral if no group had a contrast. Temperatures are NaN.
    """
    A, _ = split_sides(advantages)
    lambdas, margins = torch.ones_like(A), torch.zeros_like(A)
    here = torch.bincount(groups, minlength=n_groups).clamp(max=1)
    ranks = all_reduce(here.clone())  # how many ranks have tokens of each group
    neutral = True
    for group in ((here > 0) | (ranks > 1)).nonzero()[:, 0].tolist():
        tokens = (groups == group).nonzero()[:, 0]
        with alone() if ranks[group] == 1 else nullcontext():
            credit = contrast_credit(
                gradients[tokens], A[tokens], lambda_min=lambda_min, lambda_max=lambda_max, normalize=False, **options
            )
        # without a contrast all margins are 0, and α is 1/2
        lambdas[tokens] = (lambda_min + lambda_max) / 2 if credit.neutral else credit.weights.to(A)
        assert credit.scores is not None
        margins[tokens] = credit.scores
        neutral = neutral and credit.neutral
    neutral = bool(all_reduce(A.new_tensor(float(neutral)), "MIN"))
    if neutral:
        lambdas.fill_(1.0)
    else:
        lambdas[A == 0] = lambda_min
        lambdas = divide_by_mean(lambdas, lambda_min) if normalize else lambdas
    metrics = {"temperature_positive": math.nan, "temperature_negative": math.nan}
    return Credit(lambdas.float(), metrics, neutral, scores=margins)
