"""A control: another rule's weights, averaged over each side."""

from dataclasses import dataclass

import torch

from ..coefficients import split_sides
from ..ranks import mean_over_ranks
from ..rule import Tokens
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
        mean_winner, mean_loser = mean_over_ranks(weights, sides)
        is_winner, is_loser = sides
        return torch.where(is_winner, mean_winner, torch.where(is_loser, mean_loser, weights))
