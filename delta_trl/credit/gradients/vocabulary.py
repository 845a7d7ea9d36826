"""The base of representations over the whole vocabulary. Logits are recomputed from hidden states in tiles."""

from collections.abc import Iterator

import torch

from ..head import LMHead
from ..hidden_states import AnyStates, accumulator_of, hidden_states_of


# Elements of a tile of logits: 64 MiB in float32, whatever N and V are
_TILE = 2**24


class VocabularyGradients:
    """
    Base class of representations that need logits of the whole vocabulary: checks inputs, iterates over tiles.

    Args:
        hidden (`torch.Tensor` of shape `(N, d)` or [`HiddenStates`]): Final hidden states, any floating dtype.
        tokens (`torch.Tensor` of shape `(N,)`): Ids of the sampled tokens.
        head (`LMHead`): The output layer.
        log_probs (`torch.Tensor` of shape `(N,)`, *optional*):
            The model's own log-probabilities. A few of them are compared with those of the head.

    Raises:
        ValueError: If the shapes do not fit, or the head does not reproduce `log_probs`.
    """

    def __init__(self, hidden: AnyStates, tokens: torch.Tensor, head: LMHead, log_probs: torch.Tensor | None = None):
        self.hidden = hidden_states_of(hidden, tokens, dim=head.weight.size(1))
        self.tokens = tokens
        self.head = head
        self._unchecked = log_probs
        self.dtype = accumulator_of(hidden.dtype)

    def _tiles(self) -> Iterator[tuple[slice, torch.Tensor, slice, torch.Tensor, torch.Tensor]]:
        """
        Yield ranges of n tokens, their states (n, d), ranges of the vocabulary, and the logits and their slopes there.
        All logits, at most `_TILE` at a time, share one piece of memory.
        """
        V = len(self.head.weight)
        width = min(V, 2**15)
        size = max(1, _TILE // width)
        memory = torch.empty(size * width, dtype=self.dtype, device=self.hidden.device)
        for chunk, states in self.hidden.chunks():
            if self._unchecked is not None and len(states):
                self.head.check(states, self.tokens[chunk], self._unchecked[chunk])
                self._unchecked = None
            for first in range(0, len(states), size):
                h = states[first : first + size]
                n = len(h)
                ts = slice(chunk.start + first, chunk.start + first + n)
                for start in range(0, V, width):
                    stop = min(start + width, V)
                    tile = memory[: n * (stop - start)].view(n, -1)
                    rows = slice(start, stop)
                    logits, slope = self.head.logits(h, rows, out=tile)
                    yield ts, h, rows, logits, slope

    def _own(self, ts: slice, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column, in a tile of logits, of the sampled tokens that fall into it."""
        local = self.tokens[ts] - rows.start
        inside = ((local >= 0) & (self.tokens[ts] < rows.stop)).nonzero()[:, 0]
        return inside, local[inside]
