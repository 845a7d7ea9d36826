"""
The final hidden states of a rollout batch's tokens: kept in the device's or in main memory until the coefficients are
computed, read block by block; and products with them.

Whatever the states' dtype, sums are accumulated in float32 or better. States of lower precision are converted in
pieces: on a processor, these stay in its cache. Matrix times vector is limited by memory, so nothing is gained from
bfloat16 units, and it is exact where TF32 is allowed for matrix products.
"""

from collections.abc import Iterator

import torch


# Elements converted at a time: 2 MiB in float32 fit a processor's cache; a GPU is slow with many small kernels
_PIECE = {"cpu": 2**19, "cuda": 2**25}


class HiddenStates:
    """
    Hidden states (N, d) of N tokens, in blocks.

    Args:
        blocks (`list[torch.Tensor]`): Blocks of shape `(n_i, d)`, N rows in all.
        device (`torch.device`, *optional*): Where they are read to. Defaults to that of the first block.
        staged (`bool`, *optional*, defaults to `False`):
            Whether the blocks are in main memory, and are copied to `device` when they are read. Copies do not overlap
            with computation: products with a block take a small part of the time that copying it takes.
    """

    def __init__(self, blocks: list[torch.Tensor], device: torch.device | None = None, staged: bool = False):
        self.blocks = blocks
        self.device = device or blocks[0].device
        self.staged = staged
        self.dtype = blocks[0].dtype

    @property
    def shape(self) -> tuple[int, int]:
        return sum(map(len, self.blocks)), self.blocks[0].size(1)

    def keep_only(self, wanted: torch.Tensor) -> None:
        """Keep the states in `wanted` (N,) only; block by block, so that there are never two copies of all."""
        for i, part in enumerate(wanted.split([len(block) for block in self.blocks])):
            self.blocks[i] = self.blocks[i][part.to(self.blocks[i].device)]

    def chunks(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield chunks: which of the N tokens, and their states (n, d) on `device`."""
        start = 0
        for block in self.blocks:
            states = block.to(self.device) if self.staged else block
            yield slice(start, start + len(states)), states
            start += len(states)


AnyStates = torch.Tensor | HiddenStates


def hidden_states_of(hidden: AnyStates, per_token: torch.Tensor, dim: int | None = None) -> HiddenStates:
    """The states (N, d) of N tokens. Raises `ValueError` unless `per_token` has the shape (N,), and d is `dim`."""
    n_and_dim = (*per_token.shape, dim or hidden.shape[-1])
    if per_token.ndim != 1 or tuple(hidden.shape) != n_and_dim:
        raise ValueError(
            f"expected hidden states of shape (N, {dim or 'd'}) and values of shape (N,), got {tuple(hidden.shape)} "
            f"and {tuple(per_token.shape)}. Flatten to the valid tokens first: hidden[mask], log_probs[mask]."
        )
    return HiddenStates([hidden.detach()]) if isinstance(hidden, torch.Tensor) else hidden


def accumulator_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums of numbers of another dtype are accumulated. It holds these numbers to the bit."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def score_rows(states: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """<states_j, direction> for `states` (n, d) and `direction` (d,), in the dtype of `direction`; shape (n,)."""
    with torch.autocast(states.device.type, enabled=False):
        return torch.cat([part.to(direction.dtype) @ direction for part in _pieces(states, direction.dtype)])


def combine_rows(weights: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Σ_j weights_j states_j for `weights` (n,) or (k, n) and `states` (n, d), in their dtype; shape (d,), (k, d)."""
    rows = torch.atleast_2d(weights)
    total = weights.new_zeros(len(rows), states.size(1))
    with torch.autocast(states.device.type, enabled=False):
        start = 0
        for part in _pieces(states, weights.dtype):
            part = part.to(weights.dtype)
            for row, sums in zip(rows, total, strict=True):
                sums += row[start : start + len(part)] @ part
            start += len(part)
    return total[0] if weights.ndim == 1 else total


def matmul_rows(states: torch.Tensor, weight: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """states @ weightᵀ for `states` (n, d) and `weight` (m, d), in float32 or float64; shape (n, m), as `out`."""
    dtype = accumulator_of(states.dtype)
    with torch.autocast(states.device.type, enabled=False):
        if states.dtype == weight.dtype and _multiplies_as_it_is(states):
            return torch.mm(states, weight.T, out_dtype=torch.float32, out=out)
        return torch.mm(states.to(dtype), weight.to(dtype).T, out=out)


def _multiplies_as_it_is(states: torch.Tensor) -> bool:
    # `torch.mm` has `out_dtype` since 2.8
    return states.is_cuda and states.dtype == torch.bfloat16 and torch.__version__ >= "2.8"


def _pieces(states: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    if states.dtype == dtype:
        return (states,)
    piece = _PIECE.get(states.device.type, _PIECE["cuda"])
    return states.split(max(1, piece // max(1, states.size(1))))
