"""Measures how much memory tensors take at the same time."""

import weakref
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """Bytes of all tensors that operations inside have made: `now` and at most, `peak`."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in known:
                storage = tensor.untyped_storage()
                size = storage.nbytes()
                self.now += size
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, size)
        return result

    def _free(self, size: int) -> None:
        self.now -= size


def peak_of(work: Callable[[], object], device: torch.device) -> tuple[int, object]:
    """Bytes that `work` needs at most beyond what was there before it, and what it returns."""
    if device.type == "cpu":
        with PeakMemory() as memory:
            result = work()
        return memory.peak, result
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before, result
