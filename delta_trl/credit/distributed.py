"""
Sums and concatenations over all ranks of the default process group; the identity in a single process.

They are collective: all ranks must make the same calls in the same order, whatever their tokens are. Otherwise a rank
waits for the others, or gets the values of another call.
"""

import torch
import torch.distributed as dist


def is_distributed() -> bool:
    """Whether there are other ranks that this one works with."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def all_reduce(tensor: torch.Tensor, op: str = "SUM") -> torch.Tensor:
    """Reduce `tensor` over all ranks, in place, and return it. `op`: `"SUM"`, `"MIN"`, `"MAX"`. Collective."""
    if is_distributed():
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
    return tensor


def all_gather(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Concatenate 1-d tensors of any lengths over all ranks. Also returns where this rank's begins. Collective."""
    if not is_distributed():
        return tensor, 0
    lengths = [torch.zeros(1, dtype=torch.long, device=tensor.device) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(tensor)], device=tensor.device))
    sizes = [int(length) for length in lengths]
    padded = tensor.new_zeros(max(sizes))
    padded[: len(tensor)] = tensor
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, sizes, strict=True)]), sum(sizes[: dist.get_rank()])
