"""Hidden states in either memory: the same coefficients, no more memory than promised."""

import pytest
import torch

from delta_trl.scoring import recorder

from ..corpus import tiny
from ..memory import peak_of
from ..trainers import LORA, MISALIGNED, credit, rollout_of, rollout_with_environment


BATCHES = {
    "plain": {},
    "lora and reference": {"trainer_options": LORA, "beta": 0.1, **MISALIGNED},
    "tools": {"trainer_options": {"rollout_func": rollout_with_environment}},
    "tools, misaligned": {**MISALIGNED, "trainer_options": {"rollout_func": rollout_with_environment}},
    "truncated": {**MISALIGNED, "mask_truncated_completions": True, "max_completion_length": 24},
    "bf16": {**MISALIGNED, "bf16": True},
    "lm_head": {"per_device_train_batch_size": 4, "steps_per_generation": 2, **credit(token_gradient="lm_head")},
}


@pytest.mark.parametrize("options", BATCHES.values(), ids=BATCHES)
def test_every_place_gives_the_same_coefficients(make, rollout, device, on_gpu, options):
    def coefficients(place: str) -> torch.Tensor:
        trainer = make(**options, hidden_state_cache=place)
        return rollout(trainer)["token_coefficients"]

    expected = coefficients("device")
    assert expected.device == device
    assert expected.std() > 0
    tolerance = 1e-5 if on_gpu else 1e-6
    torch.testing.assert_close(coefficients("cpu"), expected, atol=tolerance, rtol=0)
    torch.testing.assert_close(coefficients("auto"), expected, atol=tolerance, rtol=0)


@rollout_of
def mostly_short(i: int) -> list[int]:
    """Completions of 4 to 64 tokens."""
    length = 63 if i % 4 == 0 else 4 + i
    ids = [2 + (i + t) % 30 for t in range(length)]
    return [*ids, 1]


ALIGNED = {"gradient_accumulation_steps": 4}  # a reference alone scores completions without credit
REFERENCE = {"beta": 0.1, "trainer_options": LORA}


@pytest.mark.parametrize(
    ("place", "mode", "without"),
    [
        ("device", ALIGNED, REFERENCE),
        ("device", {}, {}),
        ("cpu", {}, {}),
    ],
)
def test_peak_of_a_rollout(make, rollout, device, on_gpu, place, mode, without):
    """Credit adds the hidden states of the valid tokens, and at most those of a micro-batch."""
    width = 1024 if on_gpu else 256
    options = {
        "per_device_train_batch_size": 8,
        "steps_per_generation": 4,
        "max_completion_length": 64,
        "rollout_func": mostly_short,
        **mode,
    }

    def peak(**more):
        model = tiny.model(hidden_size=width, head_dim=64)
        trainer = make(model, **options, **more)
        rollout(trainer)  # cuBLAS takes its workspace once
        return peak_of(lambda: rollout(trainer), device)

    least, _ = peak(token_credit="none", **without)
    most, batch = peak(hidden_state_cache=place)
    valid = batch["completion_mask"].bool()
    assert valid.float().mean() < 0.7  # else padding would go unnoticed
    size = width * 4
    kept = int(valid.sum()) * size
    columns = valid.size(1) + batch["prompt_ids"].size(1)
    micro_batch = 8 * columns * size
    assert most - least <= kept + micro_batch
    # states gather while the scoring pass runs: its highest peak may be before the last of them
    assert 0.3 * kept < most - least or (on_gpu and place == "cpu")


def test_auto_keeps_away_from_a_full_device(gpu):
    """What PyTorch has reserved and does not use counts as free; what is taken does not."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(gpu)
    room = free - int(recorder.MARGIN * total) - 2**28
    gigabyte = 2**30
    assert recorder.has_room(gpu, room)
    assert not recorder.has_room(gpu, room + gigabyte)
    taken = torch.empty(gigabyte, dtype=torch.int8, device=gpu)
    assert not recorder.has_room(gpu, room)
    del taken
    assert recorder.has_room(gpu, room)
