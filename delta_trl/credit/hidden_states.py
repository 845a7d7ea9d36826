"""
The final hidden states of a rollout batch's tokens, read chunk by chunk from the device's memory, from main memory, or
from a new forward pass.
"""

from collections.abc import Callable, Iterator

import torch


class HiddenStates:
    """
    Hidden states of N tokens, kept in blocks.

    Args:
        blocks (`list[torch.Tensor]`):
            Blocks of shape `(n_i, d)`, N rows in all.
        device (`torch.device`, *optional*):
            The device to read them to. Defaults to that of the first block.
        staged (`list[bool]`, *optional*):
            Which blocks lie in main memory and are copied to `device` when they are read. While one block is in use,
            the next is copied, into the other one of two buffers.
    """

    def __init__(
        self,
        blocks: list[torch.Tensor],
        device: torch.device | None = None,
        staged: list[bool] | None = None,
    ):
        self.blocks = blocks
        self.device = device or blocks[0].device
        self.staged = staged or [False] * len(blocks)
        self.shape = (sum(len(block) for block in blocks), blocks[0].size(1))
        self.dtype = blocks[0].dtype

    def chunks(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """
        Yield chunks: the indices of some of the N tokens, and their states (n, d) on `device`. The next chunk may
        overwrite the memory of this one.
        """
        copies = self._staged_copies()
        start = 0
        for block, staged in zip(self.blocks, self.staged, strict=True):
            yield slice(start, start + len(block)), next(copies) if staged else block
            start += len(block)

    def _staged_copies(self) -> Iterator[torch.Tensor]:
        blocks = [block for block, staged in zip(self.blocks, self.staged, strict=True) if staged]
        if not blocks:
            return
        module = torch.get_device_module(self.device)
        compute, transfer = module.current_stream(self.device), module.Stream(self.device)
        rows = max(len(block) for block in blocks)
        buffers = [blocks[0].new_empty(rows, self.shape[1], device=self.device) for _ in blocks[:2]]
        transfer.wait_stream(compute)
        copied = [module.Event() for _ in buffers]

        def start(i: int) -> None:
            with module.stream(transfer):
                buffers[i % 2][: len(blocks[i])].copy_(blocks[i], non_blocking=True)
            copied[i % 2].record(transfer)

        start(0)
        for i, block in enumerate(blocks):
            compute.wait_event(copied[i % 2])
            if i + 1 < len(blocks):  # into the buffer of block i - 1, once that is no longer in use
                transfer.wait_stream(compute)
                start(i + 1)
            yield buffers[i % 2][: len(block)]

    def __getitem__(self, tokens: torch.Tensor) -> "HiddenStates":
        """The states of some tokens, given by their indices in ascending order: copies on the same devices."""
        chosen = torch.zeros(self.shape[0], dtype=torch.bool, device=tokens.device)
        chosen[tokens] = True
        parts = chosen.split([len(block) for block in self.blocks])
        blocks = [block[part.to(block.device)] for block, part in zip(self.blocks, parts, strict=True)]
        return HiddenStates(blocks, self.device, self.staged)


class RecomputedStates:
    """
    Hidden states that are not stored: every reading is a forward pass.

    Args:
        shape (`tuple[int, int]`): N and d.
        dtype (`torch.dtype`), device (`torch.device`): Of the states.
        forward (`Callable`): Makes a pass and yields indices and states of tokens, like [`HiddenStates.chunks`].
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
        forward: Callable[[], Iterator[tuple[slice | torch.Tensor, torch.Tensor]]],
    ):
        self.shape, self.dtype, self.device = shape, dtype, device
        self._forward = forward

    def chunks(self) -> Iterator[tuple[slice | torch.Tensor, torch.Tensor]]:
        return self._forward()
