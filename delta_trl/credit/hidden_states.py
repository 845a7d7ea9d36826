"""The final hidden states of a rollout batch's tokens, read block by block from the device's or from main memory."""

from collections.abc import Iterator

import torch


class HiddenStates:
    """
    Hidden states of N tokens, kept in blocks.

    Args:
        blocks (`list[torch.Tensor]`): Blocks of shape `(n_i, d)`, N rows in all.
        device (`torch.device`, *optional*): The device to read them to. Defaults to that of the first block.
        staged (`bool`, *optional*, defaults to `False`):
            Whether blocks are copied to `device` when they are read. While one block is in use, the next is copied,
            into the other one of two buffers.
    """

    def __init__(self, blocks: list[torch.Tensor], device: torch.device | None = None, staged: bool = False):
        self.blocks = blocks
        self.device = device or blocks[0].device
        self.staged = staged
        self.shape = (sum(len(block) for block in blocks), blocks[0].size(1))
        self.dtype = blocks[0].dtype

    def chunks(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """
        Yield chunks: which of the N tokens, and their states (n, d) on `device`. The next chunk may overwrite the
        memory of this one.
        """
        start = 0
        for states in self._copies() if self.staged else self.blocks:
            yield slice(start, start + len(states)), states
            start += len(states)

    def _copies(self) -> Iterator[torch.Tensor]:  # (n_i, d) each
        module = torch.get_device_module(self.device)
        compute, transfer = module.current_stream(self.device), module.Stream(self.device)
        rows = max(len(block) for block in self.blocks)
        buffers = [self.blocks[0].new_empty(rows, self.shape[1], device=self.device) for _ in self.blocks[:2]]
        transfer.wait_stream(compute)
        copied = [module.Event() for _ in buffers]

        def start(i: int) -> None:
            with module.stream(transfer):
                buffers[i % 2][: len(self.blocks[i])].copy_(self.blocks[i], non_blocking=True)
            copied[i % 2].record(transfer)

        start(0)
        for i, block in enumerate(self.blocks):
            compute.wait_event(copied[i % 2])
            if i + 1 < len(self.blocks):  # into the buffer of block i - 1, once that is no longer in use
                transfer.wait_stream(compute)
                start(i + 1)
            yield buffers[i % 2][: len(block)]


AnyStates = torch.Tensor | HiddenStates
