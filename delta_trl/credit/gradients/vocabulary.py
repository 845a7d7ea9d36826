"""The base of representations over the whole vocabulary. Logits are recomputed from hidden states in tiles."""

from collections.abc import Iterator
from copy import copy
from typing import Any

import torch

from ..head import LMHead
from ..hidden_states import HiddenStates, RecomputedStates


AnyStates = torch.Tensor | HiddenStates | RecomputedStates
# Elements of a tile of logits: 64 MiB in float32, whatever N and V are
_TILE = 2**24


class VocabularyGradients:
    """Base class of representations that need logits of the whole vocabulary: checks inputs, iterates over tiles."""

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

    # attributes with an entry per token, besides `hidden` and `tokens`
    _per_token: tuple[str, ...] = ()

    def __getitem__(self, tokens: torch.Tensor) -> Any:
        """The gradients of some of the tokens."""
        part = copy(self)
        part._unchecked = None
        for name in ("hidden", "tokens", *self._per_token):
            setattr(part, name, getattr(self, name)[tokens])
        return part

    def _tiles(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, slice]]:
        """Yield token indices (n,), their states (n, d) and a range of the vocabulary, with at most `_TILE` logits."""
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
        """Row and column, in a tile of logits, of the sampled tokens that fall into it."""
        local = self.tokens[ts] - rows.start
        inside = ((local >= 0) & (self.tokens[ts] < rows.stop)).nonzero()[:, 0]
        return inside, local[inside]
