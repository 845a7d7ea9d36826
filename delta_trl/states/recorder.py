"""Recording what a scoring pass shows beside log-probabilities."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..credit import HiddenStates
from .cache import HiddenStateCache, OutOfRoomError, Placement


class ScoringPass:
    """
    Makes one scoring pass over a rollout batch and keeps what it shows: the final hidden states from which the N
    tokens of a mask were predicted, no padding, in the dtype in which they enter the LM head.

    Args:
        backbone (`torch.nn.Module`, *optional*):
            Whose last hidden states enter the LM head; `None` to look at log-probabilities only.
        placement (`Placement`, *optional*): Where to keep hidden states; `None` to keep none.

    Attributes:
        log_probs, entropies (`torch.Tensor` of shape `(B, T)` or `None`):
            `None` if no pass was made, or the backbone was not seen for every row: a hook may not fire at all, as on a
            compiled module.
        hidden (`HiddenStates` or `None`): Row by row; `None` if none are kept or there is no room.
        dim (`int`), dtype (`torch.dtype`): Of hidden states.
        rng_states (`list[torch.Tensor]`): Of the random generators when the pass began.
    """

    def __init__(self, backbone: nn.Module | None, placement: Placement | None = None):
        self.log_probs: torch.Tensor | None = None
        self.entropies: torch.Tensor | None = None
        self.hidden: HiddenStates | None = None
        self.dim, self.dtype = 0, torch.float32
        self.rng_states: list[torch.Tensor] = []
        self._backbone, self._placement = backbone, placement

    def __call__(self, score: Callable, mask: torch.Tensor):
        """
        Make the pass.

        Args:
            score (`Callable`): `GRPOTrainer._get_per_token_logps_and_entropies`, with all that it takes.
            mask (`torch.Tensor` of shape `(B, T)`): The tokens to keep hidden states of.

        Returns:
            What `score` returns, with entropies, which the fused LM head computes anyway.
        """
        self.rng_states = get_rng_states(mask.device)
        mask, rows, cache = mask.bool(), 0, None

        def keep(module, args, output):
            nonlocal rows, cache
            valid = mask[rows : rows + len(output.last_hidden_state)]  # (b, T)
            states = predicting_states(output.last_hidden_state, valid)  # (n, d)
            if rows == 0:
                self.dim, self.dtype = states.size(1), states.dtype
                n_tokens = int(mask.sum())
                if self._placement is not None and self._placement.fits(n_tokens * self.dim * self.dtype.itemsize):
                    cache = HiddenStateCache(self._placement, n_tokens)
            rows += len(valid)
            if cache is not None:
                try:
                    cache.append(states)
                except OutOfRoomError:
                    cache = None

        handle = None if self._backbone is None else self._backbone.register_forward_hook(keep)
        try:
            output = score(compute_entropy=True)
        finally:
            if handle is not None:
                handle.remove()
        if handle is None or rows == len(mask):
            self.log_probs, self.entropies = output[:2]
            self.hidden = None if cache is None else cache.states()
        return output


def predicting_states(states: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """
    The final hidden states before the valid completion tokens, as they enter the LM head.

    Args:
        states (`torch.Tensor` of shape `(b, P + T, d)`): Final hidden states of prompts and completions.
        valid (`torch.Tensor` of shape `(b, T)`): Which completion tokens to look at, n of them.

    Returns:
        `torch.Tensor` of shape `(n, d)`.
    """
    # the state one position earlier predicts a token
    states = states.detach()[:, -valid.size(1) - 1 : -1][valid.to(states.device)]
    if torch.is_autocast_enabled(states.device.type):
        # float32 weights under autocast give float32 states, which the LM head then casts
        states = states.to(torch.get_autocast_dtype(states.device.type))
    return states


def get_rng_states(device: torch.device) -> list[torch.Tensor]:
    """States of the generators that a forward pass on `device` draws dropout from."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


@contextmanager
def replayed_rng(states: list[torch.Tensor], device: torch.device) -> Iterator[None]:
    """Random numbers as they were at `states` (of `get_rng_states`); afterwards as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.set_rng_state(states[0])
        if device.type == "cuda":
            torch.cuda.set_rng_state(states[1], device)
        yield
