"""Hidden states in real pinned memory, over real streams: the same bits, the same coefficients as in device memory."""

import pytest
import torch

from delta_trl.credit import OutputRowGradients, token_coefficients
from delta_trl.policy import cache
from delta_trl.policy.cache import HiddenStateCache

from ..trainers import ALIGNED, LORA, MISALIGNED, credit


def keep_busy(device: torch.device) -> None:
    """Some milliseconds of work that is only queued."""
    if device.type == "cuda":
        torch.cuda._sleep(5_000_000)


@pytest.mark.parametrize("tier", ["device", "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_survive_a_busy_device(monkeypatch, device, on_gpu, tier, dtype):
    """Writers reuse the memory at once, readers look at a chunk long after the next one was asked for."""
    n, dim, step = (40_000, 1024, 3000) if on_gpu else (430, 32, 70)
    monkeypatch.setattr(cache, "BLOCK_BYTES", 2**22 if on_gpu else 2**12)
    expected = torch.randn(n, dim, device=device).to(dtype)
    kept = HiddenStateCache(tier, device, n, dim, dtype)
    for start in range(0, n, step):
        keep_busy(device)
        part = expected[start : start + step].clone()
        kept.write(part, [(start, start + len(part))])
        shape = part.shape
        del part
        torch.full(shape, torch.nan, device=device, dtype=dtype)  # would take the freed memory
    states = kept.states()
    assert len(states.blocks) > 3
    if on_gpu and tier == "cpu":
        assert all(block.is_pinned() for block in states.blocks)
    for _ in range(2):
        read = []
        for tokens, chunk in states.chunks():
            keep_busy(device)
            read.append((tokens, chunk.clone()))
        assert all(torch.equal(chunk, expected[tokens]) for tokens, chunk in read)


def test_coefficients_from_main_memory(monkeypatch, device, on_gpu):
    n, dim = (50_000, 1024) if on_gpu else (500, 32)
    monkeypatch.setattr(cache, "BLOCK_BYTES", 2**23 if on_gpu else 2**12)
    states = torch.randn(n, dim, device=device).bfloat16()
    log_probs, advantages = -torch.rand(n, device=device), torch.randn(n, device=device)
    found = []
    for tier in ("device", "cpu"):
        kept = HiddenStateCache(tier, device, n, dim, states.dtype)
        kept.write(states, [(0, n)])
        found.append(token_coefficients(OutputRowGradients(kept.states(), log_probs), advantages))
    assert found[0].device == device
    assert found[0].std() > 0
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=0)


BATCHES = {
    "plain": ALIGNED,
    "misaligned": MISALIGNED,
    "bf16": {**MISALIGNED, "bf16": True},
    "lora and reference": {"trainer_options": LORA, "beta": 0.1},
    "micro-batches": {"per_device_train_batch_size": 4, "steps_per_generation": 2},
    "lm_head": {**MISALIGNED, **credit(token_gradient="lm_head")},
}


@pytest.mark.parametrize("options", BATCHES.values(), ids=BATCHES)
def test_every_tier_of_a_trainer(monkeypatch, make, rollout, device, options):
    monkeypatch.setattr(cache, "BLOCK_BYTES", 5 * 32 * 4)
    expected = None
    for tier in ("device", "cpu", "auto"):
        batch = rollout(make(**options, hidden_state_cache=tier))
        coefficients = batch["token_coefficients"]
        expected = coefficients if expected is None else expected
        assert coefficients.device == device
        assert coefficients.std() > 0
        torch.testing.assert_close(coefficients, expected, atol=1e-5, rtol=0)
