"""TACO: improbable tokens of winners count less (arXiv 2607.07976)."""

import math
from dataclasses import dataclass

import torch

from ..options import check_number
from ..rule import TokenCredit
from ..tokens import Credit, Tokens


@dataclass
class TACO(TokenCredit):
    r"""
    Tokens of winners count less if they are much less probable than the entropy of their distribution suggests
    (arXiv 2607.07976; formula and defaults of its authors' code):

        r = -log π - H + log α,   w = 1 - λ (1 - e^-r) where r > 0 and A > 0, else 1

    π and the entropy H are the present policy's, in every micro-batch.

    Args:
        alpha (`float`, *optional*, defaults to `0.01`): α, in (0, 1]: tokens with π < α exp(-H) count less.
        strength (`float`, *optional*, defaults to `0.9`): λ, in [0, 1].
    """

    arxiv = "2607.07976"

    alpha: float = 0.01
    strength: float = 0.9

    def __post_init__(self):
        check_number(self, "alpha", "(0, 1]")
        check_number(self, "strength", "[0, 1]")

    def of_micro_batch(self, tokens: Tokens) -> Credit:
        risk = (-tokens.log_probs - tokens.entropies + math.log(self.alpha)).clamp(min=0)
        weights = 1 - self.strength * (1 - torch.exp(-risk))
        return Credit(torch.where(tokens.advantages > 0, weights, 1.0))
