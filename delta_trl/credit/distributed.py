"""
Sums and concatenations over all ranks of the default process group; the identity in a single process.

If ranks call different collectives, one of them hangs or gets values of another collective. Within `in_step`, every
rank first announces what it is about to do, and all of them raise an error if they differ.
TORCH_DISTRIBUTED_DEBUG=DETAIL does not replace this: with it, DistributedDataParallel crashes on gloo (torch 2.13); it
finds out only after numbers have been mixed up; and it names neither the rule nor the value that was asked for.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


_LONGEST = 120  # bytes of an announcement
_announces_on: torch.device | None = None  # the device over which ranks exchange announcements, within `in_step`
_alone = False


def is_distributed() -> bool:
    """Whether there are other ranks that this one works with."""
    return not _alone and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@contextmanager
def alone() -> Iterator[None]:
    """Within this context, sums and concatenations are over this rank alone."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def all_reduce(tensor: torch.Tensor, op: str = "SUM") -> torch.Tensor:
    """Reduce `tensor` over all ranks, in place, and return it. Collective: every rank must call it."""
    if is_distributed():
        announce(f"all_reduce of shape {tuple(tensor.shape)}, {op}")
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
    return tensor


def all_gather(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Concatenate 1-d tensors of any lengths over all ranks. Also returns where this rank's begins. Collective."""
    if not is_distributed():
        return tensor, 0
    announce("all_gather")
    lengths = [torch.zeros(1, dtype=torch.long, device=tensor.device) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(tensor)], device=tensor.device))
    sizes = [int(length) for length in lengths]
    padded = tensor.new_zeros(max(sizes))
    padded[: len(tensor)] = tensor
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, sizes, strict=True)]), sum(sizes[: dist.get_rank()])


class OutOfStepError(RuntimeError):
    """Ranks were about to do different things. The message says which."""


@contextmanager
def in_step(device: torch.device) -> Iterator[None]:
    """In this context and at its end, raise `OutOfStepError` on all ranks if they are about to do different things."""
    global _announces_on
    if not is_distributed():
        yield
        return
    _announces_on = device
    try:
        yield
        announce("the end")
    except OutOfStepError:
        raise
    except Exception as error:
        announce(f"{type(error).__name__}: {error}")  # otherwise the others would wait for this rank
        raise
    finally:
        _announces_on = None


def announce(what: str) -> None:
    """Within `in_step`, tell all ranks what this one is about to do, and raise `OutOfStepError` if they differ."""
    if _announces_on is None:
        return
    code = torch.zeros(_LONGEST, dtype=torch.uint8, device=_announces_on)
    said = list(what.encode()[:_LONGEST])
    code[: len(said)] = torch.tensor(said, dtype=torch.uint8)
    codes = [torch.empty_like(code) for _ in range(dist.get_world_size())]
    dist.all_gather(codes, code)
    if any(not torch.equal(other, codes[0]) for other in codes):
        texts = [bytes(other.tolist()).rstrip(b"\0").decode(errors="replace") for other in codes]
        raise OutOfStepError("; ".join(f"rank {rank}: {text}" for rank, text in enumerate(texts)))
