"""The ablation that contrasts winners and losers of the same prompt only, instead of the whole rollout batch."""

import math
from typing import Any

import torch

from .coefficients import contrast_credit, divide_by_mean, split_sides
from .gradients import DivisibleGradients
from .tokens import Credit


def group_credit(
    gradients: DivisibleGradients,
    advantages: torch.Tensor,
    groups: torch.Tensor,
    n_groups: int,
    *,
    lambda_min: float = 0.8,
    normalize: bool = True,
    **options: Any,
) -> Credit:
    """
    [`contrast_credit`] with centroids and temperatures of each group; λ is normalised over the whole batch.

    Args:
        gradients (`DivisibleGradients`): Of N tokens.
        advantages (`torch.Tensor` of shape `(N,)`): Advantage of each token's response.
        groups (`torch.Tensor` of shape `(N,)`): Group of each token, 0 to `n_groups - 1`, the same on all ranks.
        n_groups (`int`): Number of groups over all ranks.
        **options: Those of [`contrast_credit`].

    Returns:
        [`Credit`]: Weights of shape `(N,)`, float32; groups without contrast are not reweighted among themselves.
        Neutral if no group had a contrast; temperatures are NaN.
    """
    A, _ = split_sides(advantages)
    lambdas, margins = torch.ones_like(A), torch.zeros_like(A)
    neutral = True
    for group in range(n_groups):
        tokens = (groups == group).nonzero()[:, 0]
        credit = contrast_credit(gradients[tokens], A[tokens], lambda_min=lambda_min, normalize=False, **options)
        lambdas[tokens] = credit.weights.to(A)
        assert credit.scores is not None
        margins[tokens] = credit.scores
        neutral = neutral and credit.neutral
    if not neutral:
        lambdas[A == 0] = lambda_min
        lambdas = divide_by_mean(lambdas, lambda_min) if normalize else lambdas
    metrics = {"temperature_positive": math.nan, "temperature_negative": math.nan}
    return Credit(lambdas.float(), metrics, neutral, scores=margins)
