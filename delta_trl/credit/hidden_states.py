"""
Where the final hidden states of a rollout batch's tokens are read from, chunk by chunk: memory of the device that
computes, main memory, or a forward pass.
"""

from collections.abc import Callable, Iterator

import torch


Tokens = slice | torch.Tensor  # which of the N tokens a chunk's rows are


class HiddenStates:
    """
    Hidden states of N tokens, kept in blocks.

    Args:
        blocks (`list[torch.Tensor]`):
            Blocks of shape `(n_i, d)`, N rows in all.
        device (`torch.device`, *optional*):
            Where they are read to. Defaults to where the first block lies.
        staged (`list[bool]`, *optional*):
            Which blocks to copy to `device` when they are read: those in main memory. The next one is on its way, over
            one of two buffers, while one is computed with.
        order (`torch.Tensor` of shape `(N,)`, *optional*):
            The token of each row, where that is not its number.
    """

    passes = 0  # forward passes that reading has cost

    def __init__(
        self,
        blocks: list[torch.Tensor],
        device: torch.device | None = None,
        staged: list[bool] | None = None,
        order: torch.Tensor | None = None,
    ):
        self.blocks = blocks
        self.device = device or blocks[0].device
        self.staged = staged or [False] * len(blocks)
        self.order = order
        self.shape = (sum(len(block) for block in blocks), blocks[0].size(1))
        self.dtype = blocks[0].dtype

    def chunks(self) -> Iterator[tuple[Tokens, torch.Tensor]]:
        """Yield tokens and their states (n, d) on `device`. The memory is the next chunk's when that is asked for."""
        copies = self._staged_copies()
        for tokens, block, staged in zip(self._tokens(), self.blocks, self.staged, strict=True):
            yield tokens, next(copies) if staged else block

    def _tokens(self) -> Iterator[Tokens]:
        start = 0
        for block in self.blocks:
            tokens = slice(start, start + len(block))
            yield tokens if self.order is None else self.order[tokens]
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
            if i + 1 < len(blocks):  # into the buffer of block i - 1, when that has been computed with
                transfer.wait_stream(compute)
                start(i + 1)
            yield buffers[i % 2][: len(block)]

    def __getitem__(self, tokens: torch.Tensor) -> "HiddenStates":
        """The states of some tokens, a copy where those lie."""
        number = torch.full((self.shape[0],), -1, device=tokens.device)
        number[tokens] = torch.arange(len(tokens), device=tokens.device)
        blocks, staged, order = [], [], []
        for of_block, block, is_staged in zip(self._tokens(), self.blocks, self.staged, strict=True):
            numbers = number[of_block]
            rows = (numbers >= 0).nonzero()[:, 0]
            if len(rows) or not blocks:
                blocks.append(block[rows.to(block.device)])
                staged.append(is_staged)
                order.append(numbers[rows])
        return HiddenStates(blocks, self.device, staged, torch.cat(order))


class RecomputedStates:
    """
    Hidden states of which nothing is kept: every reading is a forward pass.

    Args:
        shape (`tuple[int, int]`): N and d.
        dtype (`torch.dtype`), device (`torch.device`): Of the states.
        forward (`Callable`): A pass: yields tokens and states like [`HiddenStates.chunks`].

    Attributes:
        passes (`int`): Forward passes so far.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
        forward: Callable[[], Iterator[tuple[Tokens, torch.Tensor]]],
    ):
        self.shape, self.dtype, self.device = shape, dtype, device
        self.passes = 0
        self._forward = forward

    def chunks(self) -> Iterator[tuple[Tokens, torch.Tensor]]:
        self.passes += 1
        yield from self._forward()
