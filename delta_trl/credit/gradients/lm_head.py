r"""
The exact gradient of the LM head. With logits z_jv = W_v · h_j and p = softmax(z / T), and up to the constant 1/T,

    ∇_W log π(o_j) = (e_y - p_j) ⊗ h_j         a V × d matrix per token

It is never materialised per token: probabilities are recomputed from the hidden states in tiles.
"""

import torch

from ..distributed import all_reduce
from ..head import LMHead
from .vocabulary import AnyStates, VocabularyGradients


class LMHeadGradients(VocabularyGradients):
    r"""
    The exact gradient of log π(o_j) with respect to the LM head, (e_y - p_j) ⊗ h_j. The paper's output-row proxy is
    one of its V rows.

    A `direction` has the shape of the LM head. Work is tiled over tokens and vocabulary; per token only one number,
    the log-sum-exp of its logits, is kept.

    Args:
        hidden (`torch.Tensor` of shape `(N, d)`, [`HiddenStates`] or [`RecomputedStates`]):
            Final hidden states, any floating dtype.
        tokens (`torch.Tensor` of shape `(N,)`): Ids of the sampled tokens.
        head (`LMHead`): The output layer.
        log_probs (`torch.Tensor` of shape `(N,)`, *optional*):
            The model's own log-probabilities. A few of them are compared with those of the head.

    Raises:
        ValueError: If the shapes do not fit, or the head does not reproduce `log_probs`.
    """

    _per_token = ("log_normalizer",)

    def __init__(self, hidden: AnyStates, tokens: torch.Tensor, head: LMHead, log_probs: torch.Tensor | None = None):
        super().__init__(hidden, tokens, head, log_probs)
        self.log_normalizer = self._log_sum_exp(1)

    def _log_sum_exp(self, factor: int) -> torch.Tensor:  # (N,)
        """log Σ_v exp(factor · z_v) of every token. One pass over the LM head."""
        total = torch.full((len(self.tokens),), -torch.inf, dtype=self.dtype, device=self.hidden.device)
        for ts, h, rows in self._tiles():
            logits, _ = self.head.logits(h, rows)
            total[ts] = torch.logaddexp(total[ts], logits.mul_(factor).logsumexp(dim=1))
        return total

    @torch.no_grad()
    def collision_probabilities(self) -> torch.Tensor:  # (N,)
        """Σ_v p_v² of the distribution that each token was sampled from. One pass over the LM head."""
        return torch.exp(self._log_sum_exp(2) - 2 * self.log_normalizer)

    def _logit_gradient(self, ts: torch.Tensor, h: torch.Tensor, rows: slice) -> torch.Tensor:  # (n, V')
        """∂ log π(o_j) / ∂ (W h_j) for a tile: e_y - p, times the logits' own derivative."""
        logits, slope = self.head.logits(h, rows)
        gradient = -torch.exp(logits - self.log_normalizer[ts, None])
        gradient[self._own(ts, rows)] += 1
        return gradient * slope

    def combine(self, weights: torch.Tensor) -> torch.Tensor:  # (..., N) -> (..., V, d)
        if weights.ndim > 1:
            return torch.stack([self.combine(w) for w in weights])
        direction = torch.zeros(self.head.weight.shape, dtype=self.dtype, device=self.hidden.device)
        for ts, h, rows in self._tiles():
            gradient = self._logit_gradient(ts, h, rows) * weights[ts, None].to(self.dtype)
            direction[rows] += gradient.T @ h.to(self.dtype)
        return all_reduce(direction)

    def score(self, direction: torch.Tensor) -> torch.Tensor:  # (V, d) -> (N,)
        scores = torch.zeros(len(self.tokens), dtype=self.dtype, device=self.hidden.device)
        for ts, h, rows in self._tiles():
            scores[ts] += (self._logit_gradient(ts, h, rows) * (h.to(self.dtype) @ direction[rows].T)).sum(dim=1)
        return scores
