r"""
The exact gradient of the LM head. With logits z_jv = W_v · h_j and p = softmax(z / T), and up to the constant 1/T,

    ∇_W log π(o_j) = (e_y - p_j) ⊗ h_j         a V × d matrix per token

It is never materialised per token: probabilities are recomputed from the hidden states in tiles.
"""

from collections.abc import Iterator

import torch

from ..head import LMHead
from ..hidden_states import AnyStates
from ..ranks import all_reduce
from .vocabulary import VocabularyGradients


class LMHeadGradients(VocabularyGradients):
    r"""
    The exact gradient of log π(o_j) with respect to the LM head, (e_y - p_j) ⊗ h_j. The paper's output-row proxy is
    one of its V rows.

    A `direction` has the shape of the LM head. Work is tiled over tokens and vocabulary; per token only one number,
    the log-sum-exp of its logits, is kept.

    Takes the arguments of [`VocabularyGradients`].
    """

    def __init__(self, hidden: AnyStates, tokens: torch.Tensor, head: LMHead, log_probs: torch.Tensor | None = None):
        super().__init__(hidden, tokens, head, log_probs)
        # log Σ_v exp(z_v) of every token, (N,), summed tile by tile
        n_tokens = len(tokens)
        log_normalizer = torch.full((n_tokens,), -torch.inf, dtype=self.dtype, device=self.hidden.device)
        for ts, _, _, logits, _ in self._tiles():
            largest = logits.amax(dim=1)
            logits -= largest[:, None]
            here = largest + logits.exp_().sum(dim=1).log()
            log_normalizer[ts] = torch.logaddexp(log_normalizer[ts], here)
        self.log_normalizer = log_normalizer

    def _logit_gradients(self) -> Iterator[tuple[slice, torch.Tensor, slice, torch.Tensor]]:
        """As `_tiles`, with ∂ log π(o_j) / ∂ (W h_j) (n, V'): e_y - p, times the logits' own derivative."""
        for ts, h, rows, logits, slope in self._tiles():
            gradient = logits.sub_(self.log_normalizer[ts, None]).exp_().neg_()
            gradient[self._own(ts, rows)] += 1
            yield ts, h.to(self.dtype), rows, gradient.mul_(slope)

    def combine(self, weights: torch.Tensor) -> torch.Tensor:  # (N,) -> (V, d)
        direction = torch.zeros(self.head.weight.shape, dtype=self.dtype, device=self.hidden.device)
        for ts, h, rows, gradient in self._logit_gradients():
            direction[rows].addmm_(gradient.T, h * weights[ts, None].to(self.dtype))
        return all_reduce(direction)

    def score(self, direction: torch.Tensor) -> torch.Tensor:  # (V, d) -> (N,)
        scores = torch.zeros(len(self.tokens), dtype=self.dtype, device=self.hidden.device)
        for ts, h, rows, gradient in self._logit_gradients():
            scores[ts] += (gradient @ direction[rows] * h).sum(dim=1)
        return scores
