"""The ablation that contrasts winners and losers of the same prompt only, instead of the whole rollout batch."""

import math

import torch

from .coefficients import divide_by_mean, split_sides, token_coefficients
from .gradients import TokenGradients


def group_coefficients(
    gradients: TokenGradients,
    advantages: torch.Tensor,
    groups: torch.Tensor,
    n_groups: int,
    *,
    lambda_min: float = 0.8,
    normalize: bool = True,
    statistics: dict[str, float] | None = None,
    **options,
) -> torch.Tensor:
    """
    [`token_coefficients`] with centroids and temperatures of each group; λ is normalised over the whole batch.

    Args:
        gradients (`TokenGradients`): Of N tokens; must allow `gradients[indices]`.
        advantages (`torch.Tensor` of shape `(N,)`): Advantage of each token's response.
        groups (`torch.Tensor` of shape `(N,)`): Group of each token, 0 to `n_groups - 1`, the same on all ranks.
        n_groups (`int`): Number of groups over all ranks.
        statistics (`dict`, *optional*): Filled with `neutral`, 1 if no group had a contrast; temperatures are NaN.
        **options: Those of [`token_coefficients`].

    Returns:
        `torch.Tensor` of shape `(N,)`, float32. Groups without contrast are not reweighted among themselves.
    """
    A, _ = split_sides(advantages)
    lambdas = torch.ones_like(A)
    neutral = True
    for group in range(n_groups):
        tokens = (groups == group).nonzero()[:, 0]
        of_group = {}
        lambdas[tokens] = token_coefficients(
            gradients[tokens],
            A[tokens],
            lambda_min=lambda_min,
            normalize=False,
            statistics=of_group,
            **options,
        ).to(A)
        neutral = neutral and bool(of_group["neutral"])
    if statistics is not None:
        statistics |= {"neutral": float(neutral), "temperature_positive": math.nan, "temperature_negative": math.nan}
    if neutral:
        return torch.ones_like(A).float()
    lambdas[A == 0] = lambda_min
    return (divide_by_mean(lambdas, lambda_min) if normalize else lambdas).float()
