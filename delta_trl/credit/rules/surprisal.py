"""The most surprising tokens of each response keep their weight."""

from dataclasses import dataclass

import torch

from ..tokens import Tokens
from .shared import TopOfResponse


@dataclass
class Surprisal(TopOfResponse):
    """
    The tokens of each response that surprised the policy most, -log π, keep their weight; the others lose it. Weights
    are divided by their mean over the tokens with A ≠ 0.

    Args:
        fraction (`float`, *optional*, defaults to `0.2`): The part of a response's tokens to keep, rounded up.
        side (`str`, *optional*, defaults to `"losers"`):
            Which responses to mask: `"losers"`, `"winners"` or `"both"`. All weights of the other side are 1.
        rest (`float`, *optional*, defaults to `0.0`): Weight of the other tokens, in [0, 1).
    """

    def token_scores(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.log_probs
