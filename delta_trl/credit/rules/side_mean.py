"""A control: another rule's weights, averaged over each side."""

from dataclasses import dataclass

import torch

from ..coefficients import split_sides
from ..rule import Tokens, all_reduce
from .changed import ChangedCredit


@dataclass
class SideMean(ChangedCredit):
    """
    Every token with A ≠ 0 gets the mean weight of its side. Without token-level information, a rule only reweights
    winners against losers.

    Args:
        rule ([`TokenCredit`], *optional*, defaults to [`DelTA`] with its defaults): Whose weights to average.
    """

    def change(self, weights: torch.Tensor, tokens: Tokens) -> torch.Tensor:
        _, sides = split_sides(tokens.advantages)
        mean = all_reduce((sides * weights).sum(dim=1)) / all_reduce(sides.sum(dim=1).to(weights))
        return torch.where(sides[0], mean[0], torch.where(sides[1], mean[1], weights))
