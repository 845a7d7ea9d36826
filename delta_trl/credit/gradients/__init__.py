"""
Ways to represent the gradients v_j = ∇θ log π(o_j) of all sampled tokens, one in each file. Some are exact, others
cheap proxies.

The algorithm (`coefficients.py`) needs only two linear operations of a representation, so that no [tokens ×
parameters] matrix is ever formed.
"""

from typing import Any, Protocol

import torch


class TokenGradients(Protocol):
    """
    N token gradients, which are used only through two linear operations. Both are collective: every rank must call
    them. Each representation has its own form of a direction, a tensor or a list of tensors.
    """

    def combine(self, weights: torch.Tensor) -> Any:
        """
        Σ_j weights_j v_j over the tokens of all ranks, for `weights` of shape (N,). The paper's two proxies also take
        several rows of weights (..., N) and return as many directions.
        """

    def score(self, direction: Any) -> torch.Tensor:
        """<v_j, direction> of this rank's tokens, shape (N,), for a `direction` that `combine` returned."""
