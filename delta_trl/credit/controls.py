"""Controls for what DelTA's coefficients contribute: the paper's random λ and token selection, and side means."""

import torch

from .coefficients import divide_by_mean, split_sides
from .distributed import all_gather, all_reduce


SELECTIONS = ("all", "top", "bottom", "random")


def random_coefficients(
    advantages: torch.Tensor, lambda_min: float, lambda_max: float, normalize: bool = True
) -> torch.Tensor:
    """λ uniform in its range where A ≠ 0 and λ_min elsewhere, like DelTA's but without information. Shape (N,)."""
    A, sides = split_sides(advantages)
    lambdas = lambda_min + (lambda_max - lambda_min) * torch.rand_like(A) * sides.any(dim=0)
    return (divide_by_mean(lambdas, lambda_min) if normalize else lambdas).float()


def side_mean(coefficients: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """
    Every token with A ≠ 0 gets the mean coefficient of its side: what is left of DelTA without token-level
    information, a reweighting of winners against losers. Shape (N,).
    """
    _, sides = split_sides(advantages)
    mean = all_reduce((sides * coefficients).sum(dim=1)) / all_reduce(sides.sum(dim=1).to(coefficients))
    return torch.where(sides[0], mean[0], torch.where(sides[1], mean[1], coefficients))


def select_tokens(
    coefficients: torch.Tensor, advantages: torch.Tensor, selection: str, fraction: float, normalize: bool = True
) -> torch.Tensor:
    """
    Plain weights on a part of the tokens: the given fraction of those with A ≠ 0, by coefficient (`"top"`, `"bottom"`)
    or at `"random"`, keeps weight 1, the others get 0. Tokens with A = 0, which do not train, stay in the mean.

    Returns `torch.Tensor` of shape (N,), of mean 1 if `normalize`. Ties go by order. Raises `ValueError` for an
    unknown selection.
    """
    if selection not in SELECTIONS:
        raise ValueError(f"selection={selection!r}: expected one of {', '.join(map(repr, SELECTIONS))}.")
    if selection == "all":
        return coefficients
    _, sides = split_sides(advantages)
    candidates = sides.any(dim=0)
    key = torch.rand_like(coefficients) if selection == "random" else coefficients
    key = key[candidates] if selection == "bottom" else -key[candidates]
    keys, start = all_gather(key)
    chosen = torch.zeros_like(keys)
    chosen[keys.argsort(stable=True)[: max(1, round(fraction * len(keys)))]] = 1
    weights = torch.ones_like(coefficients)
    weights[candidates] = chosen[start : start + len(key)]
    return divide_by_mean(weights, 0.0) if normalize else weights
