"""Sums over all ranks of the default process group; the identity in a single process."""

import torch
import torch.distributed as dist


def all_reduce(tensor: torch.Tensor, op: str = "SUM") -> torch.Tensor:
    """Reduce `tensor` over all ranks, in place, and return it. Collective: every rank must call it."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
    return tensor
