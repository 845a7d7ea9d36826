"""
Products with hidden states, which are read once. Whatever their dtype, sums are accumulated in float32 or better.

On a GPU, bfloat16 states are not converted: the other factor is split into three bfloat16 parts, whose sum is the
float32 number, and cuBLAS accumulates in float32 and returns it. Elsewhere the states are converted in pieces that
stay in the processor's cache.
"""

import torch


# Elements converted at a time: 2 MiB in float32 fit a processor's cache; a GPU is slow with many small kernels
_PIECE = {"cpu": 2**19, "cuda": 2**25}


def score_rows(states: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """<states_j, direction> for `states` (n, d) and `direction` (d,), in the dtype of `direction`; shape (n,)."""
    with torch.autocast(states.device.type, enabled=False):
        if direction.dtype == torch.float32 and _multiplies_as_it_is(states):
            return torch.mm(states, as_bfloat16_terms(direction).T, out_dtype=torch.float32).sum(dim=1)
        return torch.cat([part.to(direction.dtype) @ direction for part in _pieces(states, direction.dtype)])


def combine_rows(weights: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Σ_j weights_j states_j for `weights` (..., n) and `states` (n, d), in the dtype of `weights`; shape (..., d)."""
    with torch.autocast(states.device.type, enabled=False):
        if weights.dtype == torch.float32 and _multiplies_as_it_is(states):
            rows = weights.reshape(-1, weights.size(-1))
            parts = torch.stack(
                [torch.mm(as_bfloat16_terms(w), states, out_dtype=torch.float32).sum(dim=0) for w in rows]
            )
            return parts.reshape(*weights.shape[:-1], -1)
        total = weights.new_zeros(*weights.shape[:-1], states.size(1))
        start = 0
        for part in _pieces(states, weights.dtype):
            total += weights[..., start : start + len(part)] @ part.to(weights.dtype)
            start += len(part)
        return total


def matmul_rows(states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """states @ weightᵀ for `states` (n, d) and `weight` (m, d), in float32 or float64; shape (n, m)."""
    dtype = torch.float64 if states.dtype == torch.float64 else torch.float32
    with torch.autocast(states.device.type, enabled=False):
        if states.dtype == weight.dtype and _multiplies_as_it_is(states):
            return torch.mm(states, weight.T, out_dtype=torch.float32)
        return states.to(dtype) @ weight.to(dtype).T


def as_bfloat16_terms(x: torch.Tensor) -> torch.Tensor:
    """A float32 vector (n,) as bfloat16 rows (8, n) that sum to it. Five are 0: tensor cores take multiples of 8."""
    terms = x.new_zeros(8, len(x), dtype=torch.bfloat16)
    for term in terms[:3]:
        term.copy_(x)
        x = x - term.float()
    return terms


def _multiplies_as_it_is(states: torch.Tensor) -> bool:
    # `torch.mm` has `out_dtype` since 2.8
    return states.is_cuda and states.dtype == torch.bfloat16 and torch.__version__ >= "2.8"


def _pieces(states: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    if states.dtype == dtype:
        return (states,)
    piece = _PIECE.get(states.device.type, _PIECE["cuda"])
    return states.split(max(1, piece // max(1, states.size(1))))
