"""Catching the hidden states of a scoring pass."""

from contextlib import contextmanager

import torch
from torch import nn
from trl import GRPOConfig

from .cache import HiddenStateCache, OutOfRoomError, Placement
from .credit import HiddenStates
from .credit.output_row import one_minus_p
from .credit.products import combine_rows


class HiddenStateRecorder:
    """
    Takes from one scoring pass over a rollout batch what its coefficients need: the final hidden states from which its
    N valid tokens were predicted, no padding, in the dtype in which they enter the LM head. If they are to be
    recomputed, only the sums Σ (1 - p_j) h_j over each response.

    Args:
        placement (`Placement`, *optional*): Where to keep hidden states; `None` to recompute them.

    Attributes:
        tool_mask (sequence of B rows, *optional*): 0 where a completion token is a tool's. Set by the caller.
        log_probs (`torch.Tensor` of shape `(B, T)` or `None`): Of the same pass. Set by the caller.
        states (`HiddenStates` or `None`): Row by row; `None` if they are to be recomputed.
        response_sums (`torch.Tensor` of shape `(B, d)` or `None`): See above.
        few_states (`torch.Tensor` of shape `(n, d)` or `None`): Those of some of the first tokens.
        dim (`int`), dtype (`torch.dtype`): Of hidden states.
        rng_states (`list[torch.Tensor]`): Of the random generators when the pass began.
    """

    def __init__(self, placement: Placement | None):
        self.tool_mask = None
        self.log_probs: torch.Tensor | None = None
        self.states: HiddenStates | None = None
        self.response_sums: torch.Tensor | None = None
        self.few_states: torch.Tensor | None = None
        self._placement = placement
        self._cache: HiddenStateCache | None = None
        self._valid: torch.Tensor | None = None
        self._rows = self._summed_rows = 0
        self._sums = False
        self._piece: torch.Tensor | None = None

    @property
    def complete(self) -> bool:
        """Whether the backbone was seen for every row. A hook may not fire at all, as on a compiled module."""
        return self._valid is not None and self._rows == len(self._valid)

    @contextmanager
    def recording(self, model: nn.Module, backbone: nn.Module, mask: torch.Tensor):
        """Record what `model` does with successive rows of a batch with completion mask `mask` (B, T)."""
        self._valid = mask.bool()
        for row, tools in zip(self._valid, () if self.tool_mask is None else self.tool_mask, strict=False):
            row[: len(tools)] &= torch.as_tensor(tools, device=row.device).bool()
        self.rng_states = get_rng_states(mask.device)
        handles = [
            backbone.register_forward_hook(self._after_backbone),
            model.register_forward_hook(self._after_model),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._piece = None
        if self._cache is not None:
            self.states = self._cache.states()
            self._cache = None
        if self._summed_rows != len(self._valid):
            self.response_sums = None

    def _after_backbone(self, module, args, output):
        valid = self._valid[self._rows : self._rows + len(output.last_hidden_state)]  # (b, T)
        piece = predicting_states(output.last_hidden_state, valid)  # (n, d)
        if self._rows == 0:
            self.dim, self.dtype = piece.size(1), piece.dtype
            n_tokens = int(self._valid.sum())
            if self._placement is not None and self._placement.fits(n_tokens * piece.size(1) * piece.dtype.itemsize):
                self._cache = HiddenStateCache(self._placement, n_tokens)
            self._sums = self._cache is None
        if self.few_states is None and len(piece):
            self.few_states = piece[:16].clone()
        self._rows += len(valid)
        if self._sums:
            self._piece = piece  # its log-probabilities are to come
        elif self._cache is not None:
            try:
                self._cache.append(piece)
            except OutOfRoomError:
                self._cache = None

    def _after_model(self, module, args, output):
        """Add up over responses."""
        if self._piece is None:
            return
        piece, self._piece = self._piece, None
        valid = self._valid[self._summed_rows :][: len(output.log_probs)]
        scale = one_minus_p(output.log_probs.detach()[:, -valid.size(1) :][valid].float())
        lengths = valid.sum(dim=1).tolist()
        sums = [combine_rows(s, h) for s, h in zip(scale.split(lengths), piece.split(lengths), strict=True)]
        if self.response_sums is None:
            self.response_sums = sums[0].new_empty(len(self._valid), self.dim)
        self.response_sums[self._summed_rows :][: len(sums)] = torch.stack(sums)
        self._summed_rows += len(sums)


def trl_scores_rollouts(args: GRPOConfig) -> bool:
    """Whether `GRPOTrainer` computes old log-probabilities of every rollout batch, so that hidden states come free."""
    misaligned = args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations) != 0
    return misaligned or (args.use_vllm and args.vllm_importance_sampling_correction)


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
def replayed_rng(states: list[torch.Tensor], device: torch.device):
    """Random numbers as they were at `states` (of `get_rng_states`); afterwards as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.set_rng_state(states[0])
        if device.type == "cuda":
            torch.cuda.set_rng_state(states[1], device)
        yield
