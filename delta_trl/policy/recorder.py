"""Recording what a scoring pass shows beside log-probabilities."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..credit import HiddenStates
from .cache import HiddenStateCache, Placement


class ScoringPass:
    """
    Makes the calls of one scoring pass over a rollout batch and keeps what they show: the final hidden states from
    which the N tokens of a mask were predicted, no padding, in the dtype in which they enter the LM head.

    Args:
        backbone (`torch.nn.Module`, *optional*):
            Whose last hidden states enter the LM head; `None` to look at log-probabilities only.
        placement (`Placement`, *optional*): Where to keep hidden states; `None` to keep none.
        wanted (`torch.Tensor` of shape `(B, T)`, *optional*):
            The tokens to keep hidden states of. Defaults to all of the completions.

    Attributes:
        log_probs, entropies (`torch.Tensor` of shape `(B, T)` or `None`): What the pass returned. Set by the caller.
        dim (`int`), dtype (`torch.dtype`): Of hidden states; 0 if the backbone was not seen.
        rng_states (`list[torch.Tensor]`): Of the random generators when the pass began.
    """

    def __init__(
        self, backbone: nn.Module | None, placement: Placement | None = None, wanted: torch.Tensor | None = None
    ):
        self.log_probs: torch.Tensor | None = None
        self.entropies: torch.Tensor | None = None
        self.dim, self.dtype = 0, torch.float32
        self.rng_states: list[torch.Tensor] = []
        self._backbone, self._placement, self._wanted = backbone, placement, wanted
        self._cache: HiddenStateCache | None = None
        self._ends: list[int] = []  # of each row's tokens among all
        self._rows = 0  # seen

    @property
    def complete(self) -> bool:
        """Whether every row was seen. A hook may not fire at all, as on a compiled module."""
        return self._backbone is None or self._rows == len(self._ends)

    @property
    def hidden(self) -> HiddenStates | None:
        """Row by row; `None` if none are kept or there was no room."""
        return self._cache.states() if self._cache is not None and self.complete else None

    def keep_only(self, wanted: torch.Tensor) -> None:
        """Give back the memory of all other hidden states: `wanted` (N,) of those that are kept."""
        if self._cache is not None:
            self._cache.keep_only(wanted)

    def forget(self) -> None:
        """Give back the memory of the hidden states."""
        self._cache = None

    def __call__(self, score: Callable, mask: torch.Tensor, rows: torch.Tensor, width: int):
        """
        Make a call of the pass.

        Args:
            score (`Callable`): `GRPOTrainer._get_per_token_logps_and_entropies`, with all that it takes.
            mask (`torch.Tensor` of shape `(B, T)`): The tokens of all rows.
            rows (`torch.Tensor` of shape `(b,)`): Which rows the call is about, in its order.
            width (`int`): How many columns of completions it has.

        Returns:
            What `score` returns, with entropies, which the fused LM head computes anyway.
        """
        mask = mask if self._wanted is None else self._wanted
        if not self._ends:
            self.rng_states = get_rng_states(mask.device)
            self._ends = mask.sum(dim=1).cumsum(0).tolist()
        if self._backbone is None:
            return score(compute_entropy=True)
        seen = self._rows

        def keep(module, args, output):
            states = output.last_hidden_state
            here = rows[self._rows - seen :][: len(states)]
            states = predicting_states(states, mask[here, :width].bool())  # (n, d)
            if not self.dim:
                self.dim, self.dtype = states.size(1), states.dtype
                self._cache = self._allocate(states.device)
            self._rows += len(here)
            if self._cache is not None:
                self._cache.write(states, [(self._ends[i - 1] if i else 0, self._ends[i]) for i in here.tolist()])

        if self._rows == 0 and mask.is_cuda:
            torch.cuda.reset_peak_memory_stats(mask.device)
        handle = self._backbone.register_forward_hook(keep)
        try:
            return score(compute_entropy=True)
        finally:
            handle.remove()

    def _allocate(self, device: torch.device) -> HiddenStateCache | None:
        """Once, after the first forward, the widest of the pass: what that took beyond the present is kept free."""
        if self._placement is None:
            return None
        reserve = 0
        if device.type == "cuda":
            reserve = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
        blocks = self._placement.allocate(self._ends[-1], self.dim, self.dtype, reserve)
        return None if blocks is None else HiddenStateCache(blocks, self._placement.device)


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
