"""The paper's default proxy for token gradients."""

import torch

from ..hidden_states import AnyStates, accumulator_of, combine_rows, hidden_states_of, score_rows
from ..ranks import all_reduce


class OutputRowGradients:
    r"""
    The paper's default proxy (arXiv 2605.21467, appendix F): v_j = (1 - p_j) h_j, the gradient of log p_j with respect
    to the row of the LM head that belongs to the sampled token.

    `combine` also takes weights of shape (..., N), and reads the hidden states once for all of them.

    Args:
        hidden (`torch.Tensor` of shape `(N, d)` or [`HiddenStates`]):
            Final hidden states, those that entered the LM head to predict each token. Any floating dtype; sums are
            accumulated in float32 (float64 for float64 input).
        log_probs (`torch.Tensor` of shape `(N,)`):
            Log-probability of each sampled token, under the sampling temperature.

    Raises:
        ValueError: If the shapes do not fit each other.
    """

    def __init__(self, hidden: AnyStates, log_probs: torch.Tensor):
        self.hidden = hidden_states_of(hidden, log_probs)  # (N, d)
        self.dtype = accumulator_of(hidden.dtype)
        log_probs = log_probs.to(hidden.device, self.dtype)
        log_probs = log_probs.clamp(max=0)  # rounding may have left one slightly above 0
        self.scale = -torch.expm1(log_probs)  # 1 - p (N,), accurate for p near 1

    def combine(self, weights: torch.Tensor) -> torch.Tensor:  # (..., N) -> (..., d)
        weights = weights.to(self.dtype) * self.scale
        direction = weights.new_zeros(*weights.shape[:-1], self.hidden.shape[1])
        for tokens, h in self.hidden.chunks():
            direction += combine_rows(weights[..., tokens], h)
        return all_reduce(direction)

    def score(self, direction: torch.Tensor) -> torch.Tensor:  # (d,) -> (N,)
        scores = torch.empty_like(self.scale)
        for tokens, h in self.hidden.chunks():
            scores[tokens] = score_rows(h, direction)
        return self.scale * scores

    def squared_norms(self) -> torch.Tensor:  # (N,)
        """‖v_j‖². Only the within-side ablation needs it."""
        norms = torch.empty_like(self.scale)
        for tokens, h in self.hidden.chunks():
            norms[tokens] = torch.linalg.vector_norm(h, dim=1, dtype=self.dtype) ** 2
        return self.scale.square() * norms
