"""
Products with hidden states, which are read once. Whatever their dtype, sums are accumulated in float32 or better.

States of lower precision are converted in pieces: on a processor, these stay in its cache. Matrix times vector is
limited by memory, so nothing is gained from bfloat16 units, and it is exact where TF32 is allowed for matrix products.
"""

import torch


# Elements converted at a time: 2 MiB in float32 fit a processor's cache; a GPU is slow with many small kernels
_PIECE = {"cpu": 2**19, "cuda": 2**25}


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
    dtype = torch.float64 if states.dtype == torch.float64 else torch.float32
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
