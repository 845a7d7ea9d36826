"""
Catching hidden states while transformers generates, so that coefficients need no scoring pass.

A decoding step computes the very state from which the next token is sampled. Whether it is the state of a scoring
pass, too, depends on attention kernels, positions under left padding, caches and more. So nothing is assumed: a batch
that is longer or more padded than all before is scored once more, and the states are compared.
"""

import math
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from .cache import HiddenStateCache, OutOfRoomError, Placement
from .credit import HiddenStates


class GenerationCapture:
    """
    Keeps the final hidden states from which the tokens of one rollout batch were sampled, up to each <eos>.

    Args:
        placement (`Placement`): Where to keep them.
        eos_token_ids (`list[int]`): Tokens that end a completion.
        max_new_tokens (`int`): At most, for each completion.
        dtype (`torch.dtype`, *optional*): What states are cast to before they enter the LM head of a scoring pass.

    Attributes:
        states (`HiddenStates` or `None`): Tokens counted row by row; `None` if they could not be kept or made out.
    """

    def __init__(
        self, placement: Placement, eos_token_ids: list[int], max_new_tokens: int, dtype: torch.dtype | None = None
    ):
        self.states: HiddenStates | None = None
        self._placement, self._max_new_tokens, self._dtype = placement, max_new_tokens, dtype
        self._eos = torch.tensor(eos_token_ids, device=placement.device)
        self._alive: torch.Tensor | None = None  # rows without <eos> so far
        self._rows: list[torch.Tensor] = []  # at each step, the rows whose states were kept
        self._cache: HiddenStateCache | None = None

    @contextmanager
    def capturing(self, backbone: nn.Module):
        """Keep the states of one `generate`."""
        handle = backbone.register_forward_hook(self._after_step, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _after_step(self, module, args, kwargs, output):
        ids = kwargs.get("input_ids", args[0] if args else None)
        if self._alive is None:
            self._alive = torch.ones(len(output.last_hidden_state), dtype=torch.bool, device=self._eos.device)
            self._cache = HiddenStateCache(self._placement, len(self._alive) * self._max_new_tokens)
        elif ids is None:
            self._cache = None
        elif self._cache is not None:
            self._alive &= ~torch.isin(ids[:, -1], self._eos)
        if self._cache is None:
            return
        rows = self._alive.nonzero()[:, 0]
        states = output.last_hidden_state[rows, -1].detach()
        try:
            self._cache.append(states if self._dtype is None else states.to(self._dtype))
            self._rows.append(rows)
        except (OutOfRoomError, ValueError):  # more steps than tokens
            self._cache = None

    def finish(self, lengths: list[int]) -> None:
        """Order what was kept, given the number of tokens of each completion."""
        cache, self._cache = self._cache, None
        if cache is None:
            return
        rows = torch.cat(self._rows)
        lengths = torch.tensor(lengths, device=rows.device)
        if not torch.equal(rows.bincount(minlength=len(lengths)), lengths):
            return
        first = lengths.cumsum(0) - lengths
        step = torch.cat([torch.full_like(kept, t) for t, kept in enumerate(self._rows)])
        self.states = cache.states(order=first[rows] + step)


class Trust:
    """
    For which rollout batches captured states may stand for those of a scoring pass: for those no longer and no more
    padded than one on which both were compared. Once they differ, for none.
    """

    def __init__(self):
        self.length = self.padding = -1
        self.lost = False

    def covers(self, batch: dict) -> bool:
        length, padding = _extent(batch)
        return length <= self.length and padding <= self.padding

    def extend(self, batch: dict) -> None:
        length, padding = _extent(batch)
        self.length, self.padding = max(self.length, length), max(self.padding, padding)


def _extent(batch: dict) -> tuple[int, int]:
    """Width of a batch, and the widest left padding in it."""
    mask = batch["prompt_mask"]
    return mask.size(1) + batch["completion_mask"].size(1), int((1 - mask).sum(dim=1).max())


def tolerance(dtype: torch.dtype) -> float:
    """Relative difference that counts as rounding in a whole forward pass: half of the digits."""
    return math.sqrt(torch.finfo(dtype).eps)


def relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Largest ‖a - b‖ / ‖b‖ over rows; 0 without any."""
    ours, theirs = ours.float(), theirs.float()
    difference = (ours - theirs).norm(dim=1) / theirs.norm(dim=1).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.cat([difference, difference.new_zeros(1)]).max()


def is_random_or_routed(model: PreTrainedModel) -> bool:
    """Whether a second forward may differ by more than rounding: by dropout, or by routing to other experts."""
    if any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules()):
        return True
    config = model.config.get_text_config().to_dict()
    numbers = {name: value for name, value in config.items() if isinstance(value, (int, float))}
    dropout = any(value > 0 for name, value in numbers.items() if "drop" in name and "expert" not in name)
    return dropout or any(value > 1 for name, value in numbers.items() if "expert" in name)
