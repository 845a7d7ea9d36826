"""Catching the hidden states of a scoring pass."""

from contextlib import contextmanager

import torch
from torch import nn


class HiddenStateRecorder:
    """
    Keeps the final hidden states from which the valid completion tokens of one rollout batch were predicted: no
    padding, in the dtype in which they enter the LM head.

    Attributes:
        hidden_states (`torch.Tensor` of shape `(mask.sum(), d)`):
            The hidden state before each valid completion token, row by row. Set once `complete`.
        log_probs (`torch.Tensor` of shape `(B, T)` or `None`):
            Log-probabilities of the completion tokens in the same pass. Set by the caller.
    """

    def __init__(self):
        self.hidden_states: torch.Tensor | None = None
        self.log_probs: torch.Tensor | None = None
        self._mask: torch.Tensor | None = None
        self._rows = self._kept = 0

    @property
    def complete(self) -> bool:
        """Whether the backbone was seen for every row. A hook may not fire at all, as on a compiled module."""
        return self._mask is not None and self._rows == len(self._mask)

    @contextmanager
    def recording(self, backbone: nn.Module, mask: torch.Tensor):
        """Record the forwards of `backbone` on successive rows of a batch with completion mask `mask` (B, T)."""
        self._mask = mask.bool()
        handle = backbone.register_forward_hook(self._record)
        try:
            yield
        finally:
            handle.remove()

    def _record(self, module, args, output):
        hidden = output.last_hidden_state  # (b, P + T, d)
        mask = self._mask[self._rows : self._rows + len(hidden)]  # (b, T)
        # the state one position earlier predicts a token
        hidden = hidden.detach()[:, -mask.size(1) - 1 : -1][mask.to(hidden.device)]  # (n, d)
        if torch.is_autocast_enabled(hidden.device.type):
            # float32 weights under autocast give float32 states, which the LM head then casts
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        if self.hidden_states is None:
            self.hidden_states = hidden.new_empty(int(self._mask.sum()), hidden.size(1))
        self.hidden_states[self._kept : self._kept + len(hidden)] = hidden
        self._rows += len(mask)
        self._kept += len(hidden)
