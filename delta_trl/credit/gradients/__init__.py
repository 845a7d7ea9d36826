"""Token-gradient representations: what stands for v_j = ∇θ log π(o_j) of every sampled token.

The algorithm (`coefficients.py`) asks only two linear operations of a representation, so that no [tokens × parameters]
matrix is ever formed.
"""

from typing import Any, Protocol

import torch


class TokenGradients(Protocol):
    """
    N token gradients, seen only through two linear operations. Both are collective: every rank must call them. What a
    direction is (a tensor, a list of tensors) is the representation's own business.
    """

    def combine(self, weights: torch.Tensor) -> Any:
        """
        Σ_j weights_j v_j over the tokens of all ranks, for `weights` of shape (N,); all but [`FullGradients`] also
        take several rows of weights (..., N), for as many directions.
        """

    def score(self, direction: Any) -> torch.Tensor:
        """<v_j, direction> of this rank's tokens, shape (N,), for a `direction` that `combine` returned."""


class DivisibleGradients(TokenGradients, Protocol):
    """Gradients of which a part can be had."""

    def __getitem__(self, tokens: torch.Tensor) -> TokenGradients:
        """Those of some of the tokens, numbers in ascending order."""
