"""Training with vLLM in the training process."""

import pytest
import torch

from ..trainers import logged


pytest.importorskip("vllm", reason="vLLM is not installed (make test-vllm)")

from . import engine
from .checked import assert_agree, make


pytestmark = pytest.mark.vllm


@pytest.fixture(autouse=True)
def _vllm(monkeypatch):
    engine.install()
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # TRL sets them for vLLM, and the next trainer would use DDP
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)


# each pair of values of the first three once
@pytest.mark.parametrize(
    ("lora", "steps", "correction", "temperature"),
    [
        (False, 1, True, 1.0),
        (False, 4, False, 0.7),
        (True, 1, False, 1.0),
        (True, 4, True, 0.7),
    ],
)
def test_sampling_and_coefficients(tmp_path, lora, steps, correction, temperature):
    options = {"steps_per_generation": steps, "vllm_importance_sampling_correction": correction}
    trainer = make(tmp_path, lora, temperature=temperature, **options)
    trainer.train()
    assert_agree(trainer.checks)
    # without the correction, TRL scores rollouts of its own only where several steps share one
    extra = 0.0 if correction or steps > 1 else 1.0
    assert logged(trainer, "credit/extra_forward_passes") == [extra] * len(trainer.checks)
    losses = torch.tensor(logged(trainer, "loss"))
    assert losses.isfinite().all()
    if correction:
        assert max(logged(trainer, "sampling/importance_sampling_ratio/max")) < 1 + 1e-4


def test_dynamic_sampling(tmp_path):
    """Pairs of completions, most of them without contrast: TRL gets what vLLM sampled in several rounds."""
    trainer = make(tmp_path, steps_per_generation=4, num_generations=2, dynamic_sampling=True)
    trainer.train()
    assert_agree(trainer.checks)
    assert min(logged(trainer, "dynamic_sampling/no_contrast_before")) > 0.1
    assert logged(trainer, "dynamic_sampling/no_contrast") == [0.0] * len(trainer.checks)


def test_the_correction_weights_what_the_coefficients_weigh(tmp_path, rollout):
    trainer = make(tmp_path, vllm_importance_sampling_mode="token_truncate")
    batch = rollout(trainer)
    mask = batch["completion_mask"]
    difference = batch["old_per_token_logps"] - batch["sampling_per_token_logps"]
    expected = difference.exp().clamp(max=3)
    torch.testing.assert_close(batch["importance_sampling_ratio"] * mask, expected * mask)
    # an engine that samples otherwise than the policy scores
    ratio = torch.rand(mask.shape) + 0.5
    batch["importance_sampling_ratio"] = ratio
    loss = trainer._compute_loss(trainer.model, batch)
    # before the first optimiser step, the policy's own ratio is 1 and nothing is clipped
    expected = -(ratio * batch["advantages"] * mask).sum() / mask.sum()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
