"""Keeping hidden states until the coefficients are computed, in device or main memory, where there is room."""

import math
import weakref
from itertools import accumulate
from pathlib import Path

import psutil
import torch
from accelerate.logging import get_logger
from accelerate.utils import get_int_from_env

from ..credit import HiddenStates


logger = get_logger(__name__)

BLOCK_BYTES = 2**28  # a power of two, because pinned memory is rounded up to one
LOCAL_PROCESSES = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")  # by launcher
MARGIN = 0.1  # share of all memory that "auto" leaves free
CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def free_memory(device: torch.device) -> tuple[int, int]:
    """
    Free and total bytes of `device`. Main memory is what the control groups of this process allow.

    A scheduler may limit the group of a job and leave the groups inside it, where the process runs, without a limit.
    So each group above counts, too.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total
    memory = psutil.virtual_memory()
    free, total = memory.available, memory.total
    group = CGROUPS / (OWN_CGROUP.read_text().rpartition("0::/")[2].strip() if OWN_CGROUP.exists() else "")
    for folder in (group, *group.parents):
        try:
            limit, used, statistics = (
                Path(folder, name).read_text() for name in ("memory.max", "memory.current", "memory.stat")
            )
        except OSError:  # no control group of version 2, or the root, which has no limit
            continue
        if limit.strip() != "max":
            reclaimable = int(dict(line.split() for line in statistics.splitlines())["inactive_file"])
            total = min(total, int(limit))
            free = min(free, int(limit) - int(used) + reclaimable)
    return free, total


class PinnedMemory:
    """
    Main memory that this process has pinned for hidden states. PyTorch never returns pinned memory to the system but
    reuses it, so memory that was released counts as free. (PyTorch's own statistics of it differ between versions and
    are wrong in some.)
    """

    def __init__(self):
        self.used = self.highest = 0  # bytes

    @property
    def reusable(self) -> int:
        return self.highest - self.used

    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
        block = torch.empty(rows, dim, dtype=dtype, pin_memory=True)
        n_bytes = block.nbytes
        self.used += n_bytes
        self.highest = max(self.highest, self.used)
        weakref.finalize(block.untyped_storage(), self._give_back, n_bytes)
        return block

    def _give_back(self, n_bytes: int) -> None:
        self.used -= n_bytes


PINNED = PinnedMemory()


class Placement:
    """
    Where hidden states are kept.

    Args:
        cache (`str`): `"device"`, `"cpu"`, or `"auto"`: device memory, then this process's share of main memory. A
            tenth of each stays free.
        device (`torch.device`): Where the model computes; a CPU without index.
        may_recompute (`bool`, *optional*, defaults to `True`):
            Whether `"auto"` may keep nothing if there is no room. If not, what does not fit into device memory goes to
            main memory.
    """

    def __init__(self, cache: str, device: torch.device, may_recompute: bool = True):
        self.cache, self.device, self.may_recompute = cache, device, may_recompute
        self._said: set[str] = set()

    def allocate(
        self, n_tokens: int, dim: int, dtype: torch.dtype, reserve: int = 0
    ) -> list[tuple[torch.Tensor, bool]] | None:
        """
        Memory for hidden states (n_tokens, dim).

        Args:
            n_tokens, dim (`int`), dtype (`torch.dtype`): Shape and dtype of the hidden states.
            reserve (`int`, *optional*, defaults to `0`): Bytes on the device that `"auto"` leaves to forward passes.

        Returns:
            `list[tuple[torch.Tensor, bool]]`: Blocks of rows, and whether a block is in main memory and must be copied
            to the device to be read; `None` if `"auto"` finds no room.
        """
        row = dim * dtype.itemsize
        per_block = max(1, BLOCK_BYTES // row)
        sizes = [min(per_block, n_tokens - start) for start in range(0, n_tokens, per_block)] or [0]
        main_memory = torch.device("cpu")
        on_device = 0 if self.cache == "cpu" else len(sizes)
        if self.cache == "auto":
            room = self._room(self.device) - reserve
            on_device = sum(size <= room for size in accumulate(size * row for size in sizes))
            rest = row * sum(sizes[on_device:])
            if (
                rest
                and self.may_recompute
                and (self.device == main_memory or self._room(main_memory) + PINNED.reusable < rest)
            ):
                return None
        try:
            blocks = [(torch.empty(n, dim, dtype=dtype, device=self.device), False) for n in sizes[:on_device]]
            blocks += [(self._main_memory(n, dim, dtype), True) for n in sizes[on_device:]]
        except RuntimeError:  # out of memory after all: fragmented, or another process took it
            if self.cache == "auto" and self.may_recompute:
                return None
            raise
        if self.cache == "auto" and on_device < len(sizes):
            self.say("hidden states do not all fit into device memory and are kept in main memory")
        return blocks

    def say(self, what: str) -> None:
        """Warn once of what `"auto"` had to do."""
        if what not in self._said:
            self._said.add(what)
            free = " and ".join(
                f"{free_memory(device)[0] / 2**30:.1f} GiB on {device.type}"
                for device in dict.fromkeys((self.device, torch.device("cpu")))
            )
            logger.warning(f"hidden_state_cache='auto': {what} (free: {free}).")

    def _room(self, device: torch.device) -> int:
        free, total = free_memory(device)
        room = free - math.ceil(MARGIN * total)
        # every process on this host asks for as much at the same time
        return room if device.type == "cuda" else room // get_int_from_env(LOCAL_PROCESSES, 1)

    def _main_memory(self, rows: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
        if self.device.type == "cuda":
            return PINNED.allocate(rows, dim, dtype)
        return torch.empty(rows, dim, dtype=dtype)


def choose_placement(cache: str, device: torch.device, may_recompute: bool) -> Placement | None:
    """
    Where `hidden_state_cache` keeps hidden states; `None` to recompute them. Raises `ValueError` if they cannot be
    recomputed.
    """
    if cache != "recompute":
        return Placement(cache, device, may_recompute)
    if not may_recompute:
        raise ValueError(
            "hidden_state_cache='recompute' works for text-only models, and for credit that contrasts the rollout "
            "batch as a whole: by group, every prompt would cost forward passes. Use 'device', 'cpu' or 'auto'."
        )
    return None


class HiddenStateCache:
    """
    Stores the hidden states of N tokens in any order. Copies to main memory run while the device computes on.

    Args:
        blocks (`list[tuple[torch.Tensor, bool]]`): Memory from [`Placement.allocate`].
        device (`torch.device`): Where the model computes.
    """

    def __init__(self, blocks: list[tuple[torch.Tensor, bool]], device: torch.device):
        self.device = device
        self._blocks, self._staged = [block for block, _ in blocks], [staged for _, staged in blocks]
        self._starts = [0, *accumulate(len(block) for block in self._blocks)]
        self._module = torch.get_device_module(device)
        self._stream = self._copied = None  # only where there are copies: not every device has streams
        if any(self._staged):
            self._stream, self._copied = self._module.Stream(device), self._module.Event()
        self._copying: torch.Tensor | None = None  # to main memory; must live until that is done

    def write(self, states: torch.Tensor, ranges: list[tuple[int, int]]) -> None:
        """Store `states` (n, d) of the tokens in `ranges`, pairs of a first number and an end."""
        self._wait()
        start = 0
        for first, last in ranges:
            for block, staged, begin in zip(self._blocks, self._staged, self._starts, strict=False):
                low, high = max(first, begin), min(last, begin + len(block))
                if low < high:
                    self._copy(block[low - begin : high - begin], states[start + low - first :][: high - low], staged)
            start += last - first
        if self._copying is not None:
            self._copied.record(self._stream)

    def _copy(self, target: torch.Tensor, source: torch.Tensor, staged: bool) -> None:
        if not staged:
            target.copy_(source)
            return
        self._stream.wait_stream(self._module.current_stream(self.device))
        with self._module.stream(self._stream):
            target.copy_(source, non_blocking=True)
        self._copying = source

    def _wait(self) -> None:
        if self._copying is not None:
            self._copied.synchronize()
            self._copying = None

    def keep_only(self, wanted: torch.Tensor) -> None:
        """Keep the states in `wanted` (N,) only; block by block, so that there are never two copies of all."""
        self._wait()
        for i, part in enumerate(wanted.split([len(block) for block in self._blocks])):
            self._blocks[i] = self._blocks[i][part.to(self._blocks[i].device)]

    def states(self) -> HiddenStates:
        """The stored hidden states, for reading."""
        self._wait()
        return HiddenStates(self._blocks, self.device, self._staged)
