"""Memory use is as promised, by the allocator's own statistics."""

from collections.abc import Callable

import pytest
import torch

from delta_trl.policy import cache

from ..corpus import tiny
from ..memory import PeakMemory
from ..policy.test_cache import ragged_rollout


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


@pytest.mark.parametrize("tier", ["device", "cpu"])
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
    kept = valid.sum().item() * width * 4
    assert credited - without <= kept + micro_batch
    if tier == "device" or (tier == "cpu" and not on_gpu):
        assert 0.9 * kept < credited - without


def test_auto_keeps_away_from_a_full_device(gpu):
    """What PyTorch has reserved and does not use counts as free; what is taken does not."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(gpu)
    room = free - int(cache.MARGIN * total) - 2**28
    assert cache.has_room(gpu, room, reserve=0)
    assert not cache.has_room(gpu, room, reserve=2**30)
    taken = torch.empty(2**30, dtype=torch.int8, device=gpu)
    assert not cache.has_room(gpu, room, reserve=0)
    del taken
    assert cache.has_room(gpu, room, reserve=0)
