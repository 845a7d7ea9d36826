"""Rules that know no tokens: how much all of a response's tokens count, by the side that it is on."""

from dataclasses import dataclass

import torch

from ..coefficients import split_sides
from ..distributed import all_reduce
from ..rule import TokenCredit
from ..tokens import Credit, Tokens


@dataclass
class SideWeights(TokenCredit):
    """
    One weight for the tokens of winning responses (A > 0) and one for those of losing ones (A < 0). Nothing in it
    depends on a token: what a rule that weighs the sides differently has to beat.

    Without the losers (`losers=0`) it is rejection sampling with the advantages as weights.

    Args:
        winners, losers (`float`, *optional*, defaults to `1.0` and `0.2`): The weights, not negative.
        normalize (`bool`, *optional*, defaults to `True`):
            Divide by the mean over all tokens with A ≠ 0, so that the step does not shrink with the weights.
    """

    winners: float = 1.0
    losers: float = 0.2
    normalize: bool = True

    def __post_init__(self):
        for name in ("winners", "losers"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise ValueError(f"{name}={value!r}: expected a number >= 0.")
        if self.winners == self.losers == 0:
            raise ValueError("winners=0, losers=0: nothing would be left to train on.")

    def of_rollout(self, tokens: Tokens) -> Credit:
        _, sides = split_sides(tokens.advantages)
        weights = torch.where(sides[0], self.winners, torch.where(sides[1], self.losers, 1.0))
        return Credit(with_mean_one(weights, sides) if self.normalize else weights)


def with_mean_one(weights: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:  # (N,), (2, N) -> (N,)
    """
    Weights divided by their mean over the tokens with A ≠ 0 of all ranks, and 1 elsewhere, where they do not train.
    All are 1 if nothing with a weight has an advantage.
    """
    trains = sides.any(dim=0)
    total, count = all_reduce(torch.stack([(weights * trains).sum(), trains.sum().to(weights)]))
    if not total > 0:
        return torch.ones_like(weights)
    return torch.where(trains, weights * (count / total), torch.ones_like(weights))
