"""STARE: surprising tokens count more in winners and less in losers while entropy is low (arXiv 2606.19236)."""

import math
from dataclasses import dataclass

import torch

from ..coefficients import split_sides
from ..distributed import all_gather, all_reduce
from ..options import check_number
from ..rule import TokenCredit
from ..tokens import Credit, Tokens


@dataclass
class STARE(TokenCredit):
    """
    While the policy's entropy is low, the most surprising tokens of winners count more and those of losers less
    (arXiv 2606.19236; formula and defaults of its authors' code, with both sides).

    Surprise and entropy are the present policy's, in every micro-batch. Departure: tokens are ranked among the
    micro-batches of all processes together, not on each process alone.

    Args:
        fraction (`float`, *optional*, defaults to `0.1`): The part of a side's tokens that is surprising, rounded up.
        winners, losers (`float`, *optional*, defaults to `1.1` and `0.9`): Weights of the surprising tokens.
        entropy (`float`, *optional*, defaults to `0.3`): The rule applies while the mean entropy, in nats, is lower.
    """

    arxiv = "2606.19236"

    fraction: float = 0.1
    winners: float = 1.1
    losers: float = 0.9
    entropy: float = 0.3

    def __post_init__(self):
        check_number(self, "fraction", "(0, 1]")
        for name in ("winners", "losers"):
            check_number(self, name, "(-inf, inf)")
        check_number(self, "entropy", "[-inf, inf]")

    def of_micro_batch(self, tokens: Tokens) -> Credit:
        _, sides = split_sides(tokens.advantages)
        total, count = all_reduce(torch.stack([tokens.entropies.sum(), torch.ones_like(tokens.entropies).sum()]))
        applies = bool(total < self.entropy * count)
        weights = torch.ones_like(tokens.log_probs)
        if applies:
            for side, weight in zip(sides, (self.winners, self.losers), strict=True):
                everyones, start = all_gather(tokens.log_probs[side])  # ascending: the most surprising come first
                chosen = torch.zeros_like(everyones, dtype=torch.bool)
                chosen[everyones.argsort(stable=True)[: math.ceil(self.fraction * len(everyones) - 1e-6)]] = True
                ours = chosen[start : start + int(side.sum())]
                weights[side] = torch.where(ours, weight, weights[side])
        return Credit(weights, {"stare_applies": float(applies)}, neutral=not applies)
