"""Where hidden states are kept: the same coefficients from every place, no more memory than promised."""

import gc

import pytest
import torch

from delta_trl.credit import HiddenStates, hidden_states
from delta_trl.policy import recorder
from delta_trl.policy.recorder import ScoringPass
from delta_trl.trainer.scoring import RolloutPolicy

from ..corpus import tiny
from ..memory import PeakMemory, peak_of
from ..trainers import ALIGNED, LORA, MISALIGNED, credit, rollout_of, rollout_with_environment


CPU = torch.device("cpu")


@pytest.fixture
def _small_blocks(monkeypatch):
    """A few tokens per block, so that a rollout batch takes many."""
    monkeypatch.setattr(hidden_states, "BLOCK_BYTES", 5 * 32 * 4)


# --- the trainer ---

BATCHES = {
    "plain": ALIGNED,
    "lora and reference": {"trainer_options": LORA, "beta": 0.1, **MISALIGNED},
    "tools": {"trainer_options": {"rollout_func": rollout_with_environment}},
    "tools, misaligned": {**MISALIGNED, "trainer_options": {"rollout_func": rollout_with_environment}},
    "truncated": {**MISALIGNED, "mask_truncated_completions": True, "max_completion_length": 24},
    "bf16": {**MISALIGNED, "bf16": True},
    "lm_head": {"per_device_train_batch_size": 4, "steps_per_generation": 2, **credit(token_gradient="lm_head")},
}


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("options", BATCHES.values(), ids=BATCHES)
def test_every_place_gives_the_same_coefficients(make_trainer, rollout, options):
    expected = None
    for place in ("device", "cpu", "auto"):
        batch = rollout(make_trainer(**options, hidden_state_cache=place))
        coefficients = batch["token_coefficients"]
        expected = coefficients if expected is None else expected
        assert coefficients.std() > 0
        torch.testing.assert_close(coefficients, expected, atol=1e-6, rtol=0)


def memory_of_credit(make, rollout, device: torch.device, place: str, width: int, without: dict, **mode):
    """
    Bytes that token credit adds to the peak of a rollout, and at most may: the hidden states of the valid tokens, and
    those of one micro-batch. Trainers of both have the options `mode`, and the one without credit those of `without`.
    """
    options = {"per_device_train_batch_size": 8, "steps_per_generation": 4, "max_completion_length": 64, **mode}

    def peak(trainer_options=None, **more):
        functions = {"rollout_func": mostly_short, **(trainer_options or {})}
        trainer = make(tiny.model(hidden_size=width, head_dim=64), trainer_options=functions, **options, **more)
        rollout(trainer)  # cuBLAS takes its workspace once
        return peak_of(lambda: rollout(trainer), device)

    least, _ = peak(token_credit="none", **without)
    most, batch = peak(hidden_state_cache=place)
    valid = batch["completion_mask"].bool()
    assert valid.float().mean() < 0.7  # else padding would go unnoticed
    micro_batch = 8 * (valid.size(1) + batch["prompt_ids"].size(1)) * width * 4
    return most - least, valid.sum().item() * width * 4, micro_batch


def test_peak_memory(make_trainer, rollout):
    """In aligned mode, where only a reference scores completions without credit. tests/gpu has the other mode."""
    without = {"beta": 0.1, "trainer_options": LORA}
    mode = {**ALIGNED, "gradient_accumulation_steps": 4}
    added, kept, micro_batch = memory_of_credit(make_trainer, rollout, CPU, "device", 256, without, **mode)
    assert 0.9 * kept < added <= kept + micro_batch


@rollout_of
def mostly_short(i: int) -> list[int]:
    """Completions of 4 to 64 tokens."""
    return [*(2 + (i + t) % 30 for t in range(63 if i % 4 == 0 else 4 + i)), 1]


def test_nothing_of_a_rollout_batch_waits_for_the_garbage_collector(make_trainer, rollout):
    trainer = make_trainer(**MISALIGNED)
    gc.collect()
    gc.disable()
    try:
        rollout(trainer)
        alive = [thing for thing in gc.get_objects() if type(thing) in (RolloutPolicy, ScoringPass, HiddenStates)]
        assert not alive
    finally:
        gc.enable()


# --- "auto" ---


@pytest.mark.parametrize(("free", "has_room"), [(1600, True), (1599, False)])
def test_room_on_a_gpu(monkeypatch, free, has_room):
    """What PyTorch has reserved and does not use is free, too; a tenth stays so."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - 500, 10_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    assert recorder.has_room(torch.device("cuda"), 600) is has_room


def test_auto_takes_main_memory_without_room_and_says_so(make_trainer, rollout, monkeypatch, caplog):
    expected = rollout(make_trainer(hidden_state_cache="device"))
    asked = []
    monkeypatch.setattr(recorder, "has_room", lambda *args: asked.append(args))
    recorder.logger.warning_once.cache_clear()
    trainer = make_trainer(per_device_train_batch_size=4, steps_per_generation=2)
    ours = [rollout(trainer) for _ in range(2)]
    torch.testing.assert_close(ours[0]["token_coefficients"], expected["token_coefficients"])
    assert caplog.text.count("main memory") == 1
    # once for each rollout batch, for all of its tokens
    assert asked == [(CPU, int(batch["completion_mask"].sum()) * 32 * 4) for batch in ours]


# --- the cache itself ---


@pytest.mark.usefixtures("_small_blocks")
def test_what_is_given_back_is_never_beside_a_copy():
    """States of tools' tokens, of which TRL's scoring pass does not know: two copies would be over the budget."""
    wanted = torch.arange(4000) % 3 != 2
    with PeakMemory() as memory:
        kept = HiddenStates.empty(4000, 64, torch.float32, CPU)
        for start in range(0, 4000, 500):
            kept.write(torch.full((500, 64), float(start)), [(start, start + 500)])
        everything = 4000 * 64 * 4
        kept.keep_only(wanted)
        assert memory.peak < 1.2 * everything
        assert memory.now < 0.7 * everything
    expected = (torch.arange(4000) // 500 * 500)[wanted]
    for tokens, chunk in kept.chunks():
        assert torch.equal(chunk, expected[tokens, None].expand(-1, 64).float())
