"""Hidden states in pinned memory, over streams: the same bits, the same coefficients, no more memory than promised."""

import pytest
import torch

from delta_trl.credit import HiddenStates, hidden_states
from delta_trl.policy import recorder

from ..policy.test_recorder import BATCHES, memory_of_credit


def keep_busy(device: torch.device) -> None:
    """Some milliseconds of work that is only queued."""
    if device.type == "cuda":
        torch.cuda._sleep(5_000_000)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_survive_a_busy_device(monkeypatch, device, on_gpu, staged, dtype):
    """
    In any order of the tokens, across blocks. Writers reuse the memory at once, readers look at a chunk long after the
    next one was asked for.
    """
    n, dim, step = (40_000, 1024, 3000) if on_gpu else (430, 32, 70)
    monkeypatch.setattr(hidden_states, "BLOCK_BYTES", 2**22 if on_gpu else 2**12)
    expected = torch.randn(n, dim, device=device).to(dtype)
    kept = HiddenStates.empty(n, dim, dtype, device, staged)
    starts = torch.randperm(-(-n // step)) * step
    for some in starts.split(2):
        keep_busy(device)
        ranges = [(0, 0), *((start, min(start + step, n)) for start in some.tolist())]
        part = torch.cat([expected[first:last] for first, last in ranges])
        kept.write(part, ranges)
        shape = part.shape
        del part
        torch.full(shape, torch.nan, device=device, dtype=dtype)  # would take the freed memory
    assert kept.shape == (n, dim)
    assert len(kept.blocks) > 3
    if on_gpu and staged:
        assert all(block.is_pinned() for block in kept.blocks)
    for _ in range(2):
        read = []
        for tokens, chunk in kept.chunks():
            keep_busy(device)
            read.append((tokens, chunk.clone()))
        assert all(torch.equal(chunk, expected[tokens]) for tokens, chunk in read)


@pytest.mark.parametrize("name", ["lora and reference", "bf16", "lm_head"])
def test_every_place_of_a_trainer(monkeypatch, make, rollout, device, name):
    monkeypatch.setattr(hidden_states, "BLOCK_BYTES", 5 * 32 * 4)
    found = [
        rollout(make(**BATCHES[name], hidden_state_cache=place))["token_coefficients"] for place in ("device", "cpu")
    ]
    assert found[0].device == device
    assert found[0].std() > 0
    torch.testing.assert_close(*found, atol=1e-5, rtol=0)


@pytest.mark.parametrize("place", ["device", "cpu"])
def test_peak_of_a_rollout(make, rollout, device, on_gpu, place):
    width = 1024 if on_gpu else 256
    added, kept, micro_batch = memory_of_credit(make, rollout, device, place, width, {})
    assert added <= kept + micro_batch
    assert 0.9 * kept < added or (on_gpu and place == "cpu")


def test_auto_keeps_away_from_a_full_device(gpu):
    """What PyTorch has reserved and does not use counts as free; what is taken does not."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(gpu)
    room = free - int(recorder.MARGIN * total) - 2**28
    assert recorder.has_room(gpu, room)
    assert not recorder.has_room(gpu, room + 2**30)
    taken = torch.empty(2**30, dtype=torch.int8, device=gpu)
    assert not recorder.has_room(gpu, room)
    del taken
    assert recorder.has_room(gpu, room)
