"""Sums and concatenations over all ranks of the default process group; the identity in a single process."""

import torch
import torch.distributed as dist


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def all_reduce(tensor: torch.Tensor, op: str = "SUM") -> torch.Tensor:
    """Reduce `tensor` over all ranks, in place, and return it. Collective: every rank must call it."""
    if _distributed():
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
    return tensor


def all_gather(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The one-dimensional tensors of all ranks, of any lengths, in a row, and where this rank's begins. Collective."""
    if not _distributed():
        return tensor, 0
    lengths = [torch.zeros(1, dtype=torch.long, device=tensor.device) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(tensor)], device=tensor.device))
    lengths = [int(length) for length in lengths]
    padded = tensor.new_zeros(max(lengths))
    padded[: len(tensor)] = tensor
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, lengths, strict=True)]), sum(lengths[: dist.get_rank()])
