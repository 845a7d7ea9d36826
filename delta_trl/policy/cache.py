"""Keeping hidden states until the coefficients are computed, in the device's or in main memory."""

from itertools import accumulate

import torch
from accelerate.logging import get_logger

from ..credit import HiddenStates


logger = get_logger(__name__)

BLOCK_BYTES = 2**28  # a power of two, because pinned memory is rounded up to one
MARGIN = 0.1  # share of all device memory that "auto" leaves free


def has_room(device: torch.device, n_bytes: int) -> bool:
    """Whether a device keeps a tenth of its memory free beside so many bytes of hidden states."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return n_bytes + MARGIN * total <= free


class HiddenStateCache:
    """
    Stores the hidden states of N tokens in any order. Copies to main memory run while the device computes on.

    Args:
        place (`str`):
            Where to keep them: on the `"device"`, in main memory (`"cpu"`, pinned), or by `"auto"` on the device if it
            has room, else in main memory.
        device (`torch.device`): Where the model computes.
        n_tokens, dim (`int`), dtype (`torch.dtype`): Shape (N, d) and dtype of the hidden states.
    """

    def __init__(self, place: str, device: torch.device, n_tokens: int, dim: int, dtype: torch.dtype):
        row = dim * dtype.itemsize
        if place == "auto":
            place = "device" if has_room(device, n_tokens * row) else "cpu"
            if place == "cpu":
                logger.warning_once("hidden_state_cache='auto': the device has no room, main memory is used.")
        self.device, self.staged = device, place == "cpu"
        per_block = max(1, BLOCK_BYTES // row)
        sizes = [min(per_block, n_tokens - start) for start in range(0, n_tokens, per_block)] or [0]
        where = torch.device("cpu") if self.staged else device
        pinned = self.staged and device.type == "cuda"
        self._blocks = [torch.empty(n, dim, dtype=dtype, device=where, pin_memory=pinned) for n in sizes]
        self._starts = [0, *accumulate(sizes)]
        self._module = torch.get_device_module(device)
        self._stream = self._copied = None  # only where there are copies: not every device has streams
        if self.staged:
            self._stream, self._copied = self._module.Stream(device), self._module.Event()
        self._copying: torch.Tensor | None = None  # to main memory; must live until that is done

    def write(self, states: torch.Tensor, ranges: list[tuple[int, int]]) -> None:
        """Store `states` (n, d) of the tokens in `ranges`, pairs of a first number and an end."""
        self._wait()
        parts = states.split([last - first for first, last in ranges])  # raises if they are not as many
        for (first, last), part in zip(ranges, parts, strict=True):
            for block, begin in zip(self._blocks, self._starts, strict=False):
                low, high = max(first, begin), min(last, begin + len(block))
                if low < high:
                    self._copy(block[low - begin : high - begin], part[low - first : high - first])
        if self._copying is not None:
            self._copied.record(self._stream)

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        if not self.staged:
            target.copy_(source)
            return
        self._stream.wait_stream(self._module.current_stream(self.device))
        with self._module.stream(self._stream):
            target.copy_(source, non_blocking=True)
        self._copying = source

    def _wait(self) -> None:
        if self._copying is not None:
            self._copied.synchronize()
            self._copying = None

    def keep_only(self, wanted: torch.Tensor) -> None:
        """Keep the states in `wanted` (N,) only; block by block, so that there are never two copies of all."""
        self._wait()
        for i, part in enumerate(wanted.split([len(block) for block in self._blocks])):
            self._blocks[i] = self._blocks[i][part.to(self._blocks[i].device)]

    def states(self) -> HiddenStates:
        """The stored hidden states, for reading."""
        self._wait()
        return HiddenStates(self._blocks, self.device, self.staged)
