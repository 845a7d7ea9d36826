"""A control: another rule's weights at random tokens of the same response."""

from dataclasses import dataclass

import torch

from ..rule import Tokens, uniform
from .changed import ChangedCredit


@dataclass
class Shuffled(ChangedCredit):
    """
    Another rule's weights, permuted among the tokens of each response: every response keeps its sum of weights, but
    not their positions. What the rule does better than this control is due to token-level information.

    Args:
        rule ([`TokenCredit`], *optional*, defaults to [`DelTA`] with its defaults): Whose weights to permute.
    """

    def change(self, weights: torch.Tensor, tokens: Tokens) -> torch.Tensor:
        # a random order of all tokens, then sorted by response: responses in order, their tokens at random
        order = uniform(tokens).argsort()
        order = order[tokens.row[order].argsort(stable=True)]
        return weights[order]
