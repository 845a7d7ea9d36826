"""A control that knows only a token's position in its response."""

from dataclasses import dataclass

import torch

from ..tokens import Tokens
from .shared import ShareInRange


@dataclass
class Position(ShareInRange):
    """
    A control that knows only a token's position in its response: λ rises from the first token to the last.

    Args:
        lambda_min, lambda_max, normalize_coefficients: As in [`RandomCredit`].
    """

    def shares(self, tokens: Tokens) -> torch.Tensor:
        number = tokens.mask.cumsum(dim=1) - 1
        return tokens.flat(number / (number[:, -1:]).clamp(min=1))
