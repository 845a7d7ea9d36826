"""
Sums and concatenations over all ranks of the default process group; the identity in a single process.

A rank that takes part in another number of them than the others waits for ever, or gets another's numbers. Where that
is to be found out (`in_step`), every rank first says what it is about to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


_LONGEST = 120  # bytes of what a rank says
_saying: torch.device | None = None  # where ranks exchange what they are about to do, if they do
_alone = False


def is_distributed() -> bool:
    """Whether there are other ranks that this one works with."""
    return not _alone and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@contextmanager
def alone() -> Iterator[None]:
    """Within, this rank's tokens are all there are."""
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
    """The one-dimensional tensors of all ranks, of any lengths, in a row, and where this rank's begins. Collective."""
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
    """Ranks were about to do different things together. The message says which."""


@contextmanager
def in_step(device: torch.device) -> Iterator[None]:
    """Within, and where it ends, `OutOfStepError` on all ranks if they are about to do different things."""
    global _saying
    if not is_distributed():
        yield
        return
    _saying = device
    try:
        yield
        announce("the end")
    except OutOfStepError:
        raise
    except Exception as error:
        announce(f"{type(error).__name__}: {error}")  # the others would wait
        raise
    finally:
        _saying = None


def announce(what: str) -> None:
    """Say what this rank is about to do together with the others, where they compare that."""
    if _saying is None:
        return
    code = torch.zeros(_LONGEST, dtype=torch.uint8, device=_saying)
    said = list(what.encode()[:_LONGEST])
    code[: len(said)] = torch.tensor(said, dtype=torch.uint8)
    codes = [torch.empty_like(code) for _ in range(dist.get_world_size())]
    dist.all_gather(codes, code)
    if any(not torch.equal(other, codes[0]) for other in codes):
        texts = [bytes(other.tolist()).rstrip(b"\0").decode(errors="replace") for other in codes]
        raise OutOfStepError("; ".join(f"rank {rank}: {text}" for rank, text in enumerate(texts)))
