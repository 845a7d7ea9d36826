"""Memory use is as promised, by the allocator's own statistics, and training survives running out of it."""

from collections.abc import Callable

import pytest
import torch

from delta_trl.policy import cache
from delta_trl.policy.cache import Placement

from ..corpus import tiny
from ..memory import PeakMemory
from ..policy.test_cache import ragged_rollout
from ..trainers import MISALIGNED, logged


def peak_of(work: Callable[[], object], device: torch.device) -> tuple[int, object]:
    """Bytes that `work` needs at most beyond what is there before, and what it returns."""
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


@pytest.mark.parametrize("tier", ["device", "cpu", "recompute"])
def test_peak_of_a_rollout(make, rollout, device, on_gpu, tier):
    """At most the hidden states of the valid tokens, and those of one micro-batch, beyond the peak without credit."""
    width = 1024 if on_gpu else 256
    shared = {
        "per_device_train_batch_size": 8,
        "steps_per_generation": 4,
        "max_completion_length": 64,
        "trainer_options": {"rollout_func": ragged_rollout},
    }

    def peak(**options):
        trainer = make(tiny.model(hidden_size=width, head_dim=64), **{**shared, **options})
        rollout(trainer)  # cuBLAS takes its workspace once
        return peak_of(lambda: rollout(trainer), device)

    without, _ = peak(token_credit="none")
    credited, batch = peak(hidden_state_cache=tier)
    valid = batch["completion_mask"].bool()
    micro_batch = 8 * (valid.size(1) + batch["prompt_ids"].size(1)) * width * 4
    kept = micro_batch if tier == "recompute" else valid.sum().item() * width * 4
    assert credited - without <= kept + micro_batch
    if tier == "device" or (tier == "cpu" and not on_gpu):
        assert 0.9 * kept < credited - without


def test_free_memory_follows_what_is_taken(gpu):
    torch.cuda.empty_cache()
    free, total = cache.free_memory(gpu)
    taken = torch.empty(2**30, dtype=torch.int8, device=gpu)
    less, _ = cache.free_memory(gpu)
    assert 0.99 * 2**30 <= free - less <= 1.05 * 2**30
    del taken  # PyTorch keeps it, and gives it to the next to ask
    again, _ = cache.free_memory(gpu)
    assert abs(again - free) < 0.05 * 2**30
    assert free < total


@pytest.fixture
def _one_gib(device, monkeypatch):
    """One GiB to be had, of which `free_memory` does not know."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        _, total = torch.cuda.mem_get_info(device)
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(device) + 2**30) / total, device)
        yield
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        return
    empty = torch.empty

    def little(*size, **options):
        if len(size) == 2 and size[0] * size[1] > 2**28:
            raise RuntimeError("can't allocate memory")
        return empty(*size, **options)

    monkeypatch.setattr(torch, "empty", little)
    yield


@pytest.mark.usefixtures("_one_gib")
def test_running_out_of_memory(device, on_gpu, monkeypatch):
    monkeypatch.setattr(cache, "BLOCK_BYTES", 2**34)
    before = torch.cuda.memory_allocated(device) if on_gpu else 0
    rows, dim = 2**20, 1024  # 4 GiB
    assert Placement("auto", device).allocate(rows, dim, torch.float32) is None
    for placement in (Placement("device", device), Placement("auto", device, may_recompute=False)):
        with pytest.raises(RuntimeError, match=r"(?i)allocate memory|out of memory"):
            placement.allocate(rows, dim, torch.float32)
    assert len(Placement("auto", device).allocate(1000, dim, torch.float32)) == 1
    if on_gpu:
        assert torch.cuda.memory_allocated(device) == before


@pytest.mark.usefixtures("_one_gib")
def test_a_trainer_runs_out_of_memory(make, device, monkeypatch):
    """It recomputes, and trains on the same coefficients."""
    expected = make(**MISALIGNED, max_steps=4, hidden_state_cache="device")
    expected.train()
    allocate = Placement.allocate

    def ask_for_much(self, n, *args):  # but not where states are recomputed, which takes device memory
        return allocate(self, n + 2**26 if self.cache == "auto" else n, *args)

    monkeypatch.setattr(cache, "BLOCK_BYTES", 2**34)
    monkeypatch.setattr(Placement, "allocate", ask_for_much)
    ours = make(**MISALIGNED, max_steps=4)
    ours.train()
    assert logged(ours, "loss") == pytest.approx(logged(expected, "loss"), abs=1e-5)
    assert set(logged(ours, "credit/extra_forward_passes")) == {5}
