r"""
The paper's stronger proxy: the gradient of the hidden state, with the sum over the top K logits. With logits
z_jv = W_v · h_j and p = softmax(z / T), and up to the constant 1/T,

    ∇_h log π(o_j) = W_y - Σ_v p_jv W_v
"""

import torch

from ..head import LMHead
from ..hidden_states import AnyStates, combine_rows, score_rows
from ..ranks import all_reduce
from .vocabulary import VocabularyGradients


class TopKHiddenGradients(VocabularyGradients):
    r"""
    The paper's stronger proxy (appendix F): v_j = W_y - Σ_{top K} p̃_v W_v, p̃ renormalised over the K largest logits.
    With K = V it is the exact gradient of the hidden state.

    All v_j lie in the row space of W, so `combine` gathers one weight per vocabulary entry and multiplies W once, and
    `score` multiplies W once and gathers: per token, only K ids and probabilities are kept.

    Args:
        k (`int`): How many of the largest logits to keep. The other arguments are those of [`VocabularyGradients`].

    Raises:
        ValueError: If `k` is not between 1 and V, and as [`VocabularyGradients`].
    """

    def __init__(
        self, hidden: AnyStates, tokens: torch.Tensor, head: LMHead, k: int, log_probs: torch.Tensor | None = None
    ):
        super().__init__(hidden, tokens, head, log_probs)
        V = len(head.weight)
        if not 1 <= k <= V:
            raise ValueError(f"TopKHiddenGradients: k={k} must be between 1 and the vocabulary's size, {V}.")
        n = len(tokens)
        device = hidden.device
        self.ids = torch.zeros(n, k, dtype=torch.long, device=device)
        top = torch.full((n, k), -torch.inf, dtype=self.dtype, device=device)
        self.slopes = torch.zeros(n, k, dtype=self.dtype, device=device)
        self.own_slope = torch.zeros(n, dtype=self.dtype, device=device)
        for ts, _, rows, logits, slope in self._tiles():
            slope = slope.expand_as(logits)
            sampled = self._own(ts, rows)
            self.own_slope[ts][sampled[0]] = slope[sampled]
            # the K largest of those so far and of this range, with their ids and slopes
            here = logits.topk(min(k, logits.shape[1]), dim=1)
            ids = here.indices + rows.start
            slopes = slope.gather(1, here.indices)
            merged = torch.cat([top[ts], here.values], dim=1).topk(k, dim=1)
            for kept, new in ((top, here.values), (self.ids, ids), (self.slopes, slopes)):
                both = torch.cat([kept[ts], new], dim=1)
                kept[ts] = both.gather(1, merged.indices)
        self.slopes *= top.softmax(dim=1)

    def combine(self, weights: torch.Tensor) -> torch.Tensor:  # (..., N) -> (..., d)
        weights = weights.to(self.dtype)
        rows = weights.shape[:-1]
        vocabulary = len(self.head.weight)
        per_entry = weights.new_zeros(*rows, vocabulary)  # (..., V)
        of_sampled = weights * self.own_slope  # (..., N)
        of_top = weights[..., None] * self.slopes  # (..., N, K)
        of_top = of_top.flatten(-2)
        per_entry.index_add_(-1, self.tokens, of_sampled)
        per_entry.index_add_(-1, self.ids.flatten(), of_top, alpha=-1)
        return all_reduce(combine_rows(per_entry, self.head.weight))

    def score(self, direction: torch.Tensor) -> torch.Tensor:  # (d,) -> (N,)
        projected = score_rows(self.head.weight, direction)  # (V,)
        of_sampled = self.own_slope * projected[self.tokens]
        of_top = self.slopes * projected[self.ids]  # (N, K)
        return of_sampled - of_top.sum(dim=1)
