r"""
Two representations that look at the whole LM head: its exact gradient, and the paper's top-K hidden gradient.

With logits z_jv = W_v · h_j and p = softmax(z / T), and up to the constant 1/T,

    ∇_W log π(o_j) = (e_y - p_j) ⊗ h_j         the exact gradient of the LM head, a V × d matrix per token
    ∇_h log π(o_j) = W_y - Σ_v p_jv W_v        the gradient of the hidden state, here with the sum over the top K

Neither is materialised per token. Probabilities are recomputed from the hidden states in tiles.
"""

from collections.abc import Iterator
from typing import Any

import torch

from ..distributed import all_reduce
from ..head import LMHead
from ..hidden_states import HiddenStates, RecomputedStates
from ..products import combine_rows, score_rows


AnyStates = torch.Tensor | HiddenStates | RecomputedStates
# Elements of a tile of logits: 64 MiB in float32, whatever N and V are
_TILE = 2**24


class _LMHeadTokens:
    """What both representations share: checked inputs, and iteration over tiles."""

    def __init__(
        self,
        hidden: AnyStates,
        tokens: torch.Tensor,
        head: LMHead,
        log_probs: torch.Tensor | None,
    ):
        V, d = head.weight.shape
        if len(hidden.shape) != 2 or hidden.shape[1] != d or tokens.shape != hidden.shape[:1]:
            raise ValueError(
                f"{type(self).__name__} expects hidden states of shape (N, {d}), for an LM head of shape ({V}, {d}), "
                f"and token ids of shape (N,), got {tuple(hidden.shape)} and {tuple(tokens.shape)}."
            )
        self.hidden = HiddenStates([hidden]) if isinstance(hidden, torch.Tensor) else hidden
        self.tokens, self.head = tokens, head
        self._unchecked = log_probs
        self.dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32

    # what belongs to tokens, besides `hidden` and `tokens`
    _per_token: tuple[str, ...] = ()

    def __getitem__(self, tokens: torch.Tensor) -> Any:
        """The gradients of some of the tokens."""
        part = object.__new__(type(self))
        part.head, part.dtype, part._unchecked = self.head, self.dtype, None
        for name in ("hidden", "tokens", *self._per_token):
            setattr(part, name, getattr(self, name)[tokens])
        return part

    def _tiles(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, slice]]:
        """Indices and states of some tokens, and ranges of the vocabulary: tokens × range stays within `_TILE`."""
        width = min(len(self.head.weight), 2**15)
        for chunk, states in self.hidden.chunks():
            tokens = torch.arange(len(self.tokens), device=self.tokens.device)[chunk]
            if self._unchecked is not None and len(tokens):
                self.head.check(states, self.tokens[tokens], self._unchecked[tokens])
                self._unchecked = None
            size = max(1, _TILE // width)
            for ts, h in zip(tokens.split(size), states.split(size), strict=True):
                for start in range(0, len(self.head.weight), width):
                    yield ts, h, slice(start, start + width)

    def _own(self, ts: torch.Tensor, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Where in a tile the sampled tokens' entries are."""
        local = self.tokens[ts] - rows.start
        inside = ((local >= 0) & (self.tokens[ts] < rows.stop)).nonzero()[:, 0]
        return inside, local[inside]

    def _log_normalizer(self) -> torch.Tensor:  # (N,)
        """log Σ_v exp z_v of every token."""
        normalizer = torch.full((len(self.tokens),), -torch.inf, dtype=self.dtype, device=self.hidden.device)
        for ts, h, rows in self._tiles():
            logits, _ = self.head.logits(h, rows)
            normalizer[ts] = torch.logaddexp(normalizer[ts], logits.logsumexp(dim=1))
        return normalizer

    @torch.no_grad()
    def collision_probabilities(self) -> torch.Tensor:  # (N,)
        """Σ_v p_v² of the distribution that each token was sampled from. One pass over the LM head."""
        sums = torch.full((2, len(self.tokens)), -torch.inf, dtype=self.dtype, device=self.hidden.device)
        for ts, h, rows in self._tiles():
            logits, _ = self.head.logits(h, rows)
            parts = torch.stack([logits.logsumexp(dim=1), (2 * logits).logsumexp(dim=1)])
            sums[:, ts] = torch.logaddexp(sums[:, ts], parts.to(sums))
        return torch.exp(sums[1] - 2 * sums[0])


class LMHeadGradients(_LMHeadTokens):
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
        log_probs (`torch.Tensor` of shape `(N,)`, *optional*): What the model says, to check a few of the head's with.

    Raises:
        ValueError: If the shapes do not fit, or the head does not reproduce `log_probs`.
    """

    _per_token = ("log_normalizer",)

    def __init__(self, hidden: AnyStates, tokens: torch.Tensor, head: LMHead, log_probs: torch.Tensor | None = None):
        super().__init__(hidden, tokens, head, log_probs)
        self.log_normalizer = self._log_normalizer()

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


class TopKHiddenGradients(_LMHeadTokens):
    r"""
    The paper's stronger proxy (appendix F): v_j = W_y - Σ_{top K} p̃_v W_v, p̃ renormalised over the K largest logits.
    With K = V it is the exact gradient of the hidden state.

    All v_j lie in the row space of W, so `combine` gathers one weight per vocabulary entry and multiplies W once, and
    `score` multiplies W once and gathers: per token, only K ids and probabilities are kept.

    Args:
        hidden (`torch.Tensor` of shape `(N, d)`, [`HiddenStates`] or [`RecomputedStates`]):
            Final hidden states, any floating dtype.
        tokens (`torch.Tensor` of shape `(N,)`): Ids of the sampled tokens.
        head (`LMHead`): The output layer.
        k (`int`): How many of the largest logits to keep, at most V.
        log_probs (`torch.Tensor` of shape `(N,)`, *optional*): What the model says, to check a few of the head's with.

    Raises:
        ValueError: If the shapes do not fit, `k` is not between 1 and V, or the head does not reproduce `log_probs`.
    """

    _per_token = ("ids", "slopes", "own_slope")

    def __init__(
        self, hidden: AnyStates, tokens: torch.Tensor, head: LMHead, k: int, log_probs: torch.Tensor | None = None
    ):
        super().__init__(hidden, tokens, head, log_probs)
        V = len(head.weight)
        if not 1 <= k <= V:
            raise ValueError(f"TopKHiddenGradients: k={k} must be between 1 and the vocabulary's size, {V}.")
        n, device = len(tokens), hidden.device
        self.ids = torch.zeros(n, k, dtype=torch.long, device=device)
        top = torch.full((n, k), -torch.inf, dtype=self.dtype, device=device)
        self.slopes = torch.zeros(n, k, dtype=self.dtype, device=device)
        self.own_slope = torch.zeros(n, dtype=self.dtype, device=device)
        for ts, h, rows in self._tiles():
            logits, slope = head.logits(h, rows)
            slope = slope.expand_as(logits)
            own = self._own(ts, rows)
            self.own_slope[ts[own[0]]] = slope[own]
            # the K largest so far against this range's
            here = logits.topk(min(k, logits.shape[1]), dim=1)
            merged = torch.cat([top[ts], here.values], dim=1).topk(k, dim=1)
            for kept, new in (
                (top, here.values),
                (self.ids, here.indices + rows.start),
                (self.slopes, slope.gather(1, here.indices)),
            ):
                kept[ts] = torch.cat([kept[ts], new], dim=1).gather(1, merged.indices)
        self.slopes *= top.softmax(dim=1)

    def combine(self, weights: torch.Tensor) -> torch.Tensor:  # (..., N) -> (..., d)
        weights = weights.to(self.dtype)
        per_entry = weights.new_zeros(*weights.shape[:-1], len(self.head.weight))
        per_entry.index_add_(-1, self.tokens, weights * self.own_slope)
        per_entry.index_add_(-1, self.ids.flatten(), -(weights[..., None] * self.slopes).flatten(-2))
        return all_reduce(combine_rows(per_entry, self.head.weight))

    def score(self, direction: torch.Tensor) -> torch.Tensor:  # (d,) -> (N,)
        projected = score_rows(self.head.weight, direction)  # (V,)
        return self.own_slope * projected[self.tokens] - (self.slopes * projected[self.ids]).sum(dim=1)
