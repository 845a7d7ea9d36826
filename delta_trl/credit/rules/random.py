"""The paper's control without information."""

from dataclasses import dataclass

import torch

from ..coefficients import split_sides
from ..tokens import Tokens
from .shared import ShareInRange


@dataclass
class RandomCredit(ShareInRange):
    """
    The paper's control without information: λ uniform in its range where A ≠ 0, and λ_min elsewhere.

    Args:
        lambda_min, lambda_max (`float`, *optional*, defaults to `0.8` and `1.2`): The range.
        normalize_coefficients (`bool`, *optional*, defaults to `True`): Divide by the mean over the rollout batch.
    """

    arxiv = "2605.21467"

    def shares(self, tokens: Tokens) -> torch.Tensor:
        A, sides = split_sides(tokens.advantages)
        return torch.rand_like(A) * sides.any(dim=0)
