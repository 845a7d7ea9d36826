"""Keeping hidden states until the coefficients are computed, in device or main memory, where there is room."""

import math
from pathlib import Path

import psutil
import torch
from accelerate.logging import get_logger

from ..credit import HiddenStates


logger = get_logger(__name__)

BLOCK_BYTES = 2**28  # a power of two: what pinned memory is rounded up to
MARGIN = 0.1  # of all memory, which "auto" leaves free


class OutOfRoomError(Exception):
    """`hidden_state_cache="auto"` finds no room for more hidden states."""


def free_memory(device: torch.device) -> tuple[int, int]:
    """Bytes to be had on `device` at this moment, and bytes that there are; main memory within a control group."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total
    memory = psutil.virtual_memory()
    free, total = memory.available, memory.total
    for folder, limit, used, cached in (
        ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit, used, statistics = (Path(folder, name).read_text() for name in (limit, used, "memory.stat"))
        except OSError:
            continue
        if limit.strip() != "max":
            reclaimable = int(dict(line.split() for line in statistics.splitlines())[cached])
            total = min(total, int(limit))
            free = min(free, int(limit) - int(used) + reclaimable)
    if torch.cuda.is_initialized() and hasattr(torch.cuda, "host_memory_stats"):
        # pinned memory that PyTorch keeps for the next to ask
        statistics = torch.cuda.host_memory_stats()
        free += statistics["allocated_bytes.current"] - statistics["active_bytes.current"]
    return free, total


class Placement:
    """
    Where blocks of hidden states go.

    Args:
        cache (`str`): `"device"`, `"cpu"`, or `"auto"`: device memory, else main memory; a tenth of each stays free.
        device (`torch.device`): Where the model computes; a CPU without index.
    """

    def __init__(self, cache: str, device: torch.device):
        self.cache, self.device = cache, device
        self._said = set()

    def fits(self, n_bytes: int) -> bool:
        """Whether so much may be kept in all."""
        if self.cache != "auto":
            return True
        devices = dict.fromkeys((self.device, torch.device("cpu")))
        return sum(max(0, self._room(device)) for device in devices) >= n_bytes

    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, bool]:
        """A block (rows, dim), and whether it is main memory, to be staged. Raises `OutOfRoomError`, with `"auto"`."""
        if self.cache == "device":
            return torch.empty(rows, dim, dtype=dtype, device=self.device), False
        if self.cache == "cpu":
            return self._main_memory(rows, dim, dtype), True
        n_bytes = rows * dim * dtype.itemsize
        if self._room(self.device) >= n_bytes:
            try:
                return torch.empty(rows, dim, dtype=dtype, device=self.device), False
            except RuntimeError:  # out of memory after all: it is in pieces, or somebody was faster
                pass
        if self.device.type != "cpu" and self._room(torch.device("cpu")) >= n_bytes:
            try:
                block = self._main_memory(rows, dim, dtype)
            except RuntimeError:
                pass
            else:
                self.say("hidden states do not all fit into device memory and are kept in main memory")
                return block, True
        raise OutOfRoomError

    def say(self, what: str) -> None:
        """Log what `"auto"` had to do, once."""
        if what not in self._said:
            self._said.add(what)
            free = " and ".join(
                f"{free_memory(device)[0] / 2**30:.1f} GiB on {device.type}"
                for device in dict.fromkeys((self.device, torch.device("cpu")))
            )
            logger.warning(f"hidden_state_cache='auto': {what} (free: {free}).")

    def _room(self, device: torch.device) -> int:
        free, total = free_memory(device)
        return free - math.ceil(MARGIN * total)

    def _main_memory(self, rows: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(rows, dim, dtype=dtype, pin_memory=self.device.type == "cuda")


class HiddenStateCache:
    """
    Takes hidden states as they come. Copies to main memory run beside what the device computes next.

    Args:
        placement (`Placement`): Where to keep them.
        capacity (`int`): How many at most.
    """

    def __init__(self, placement: Placement, capacity: int):
        self.placement, self.capacity = placement, capacity
        self._blocks, self._staged = [], []
        self._free = 0  # rows of the last block
        self._module = torch.get_device_module(placement.device)
        self._stream = self._copied = None  # only where something is copied: not every device has streams
        self._copying: torch.Tensor | None = None  # to main memory: must live until that is done

    def append(self, states: torch.Tensor) -> None:
        """Keep `states` (n, d). Raises `OutOfRoomError`."""
        self._wait()
        start = 0
        while start < len(states) or not self._blocks:
            if not self._free:
                self._add_block(states)
            block, n = self._blocks[-1], min(self._free, len(states) - start)
            target = block[len(block) - self._free :][:n]
            if self._staged[-1]:
                self._stream.wait_stream(self._module.current_stream(states.device))
                with self._module.stream(self._stream):
                    target.copy_(states[start : start + n], non_blocking=True)
                self._copying = states
            else:
                target.copy_(states[start : start + n])
            self._free -= n
            start += n
        if self._copying is not None:
            self._copied.record(self._stream)

    def _add_block(self, states: torch.Tensor) -> None:
        left = self.capacity - sum(len(block) for block in self._blocks)
        if len(states) and not left:
            raise ValueError(f"HiddenStateCache: more hidden states than its capacity of {self.capacity}.")
        rows = min(left, max(1, BLOCK_BYTES // (states.size(1) * states.dtype.itemsize)))
        block, staged = self.placement.allocate(rows, states.size(1), states.dtype)
        self._blocks.append(block)
        self._staged.append(staged)
        if staged and self._stream is None:
            self._stream, self._copied = self._module.Stream(self.placement.device), self._module.Event()
        self._free = rows

    def _wait(self) -> None:
        if self._copying is not None:
            self._copied.synchronize()
            self._copying = None

    def states(self) -> HiddenStates:
        """What was kept, to read."""
        self._wait()
        blocks = [*self._blocks[:-1], self._blocks[-1][: len(self._blocks[-1]) - self._free]]
        return HiddenStates(blocks, self.placement.device, self._staged)
