"""The vLLM paths of TRL with a stand-in for vLLM: what token credit touches there is the scoring pass."""

import random
from types import SimpleNamespace

import pytest
import torch
from trl.trainer import grpo_trainer

from . import tiny


def sample(prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
    """Completions that depend on the prompt and its place alone, with made-up sampling log-probabilities."""
    ids, log_probs = [], []
    for i, prompt in enumerate(prompts):
        generator = random.Random(f"{prompt} {i}")
        ids.append([generator.randrange(2, tiny.SIZES["vocab_size"]) for _ in range(generator.randrange(3, 8))] + [1])
        log_probs.append([-3.7 + generator.uniform(-1, 1) for _ in ids[-1]])
    return ids, log_probs


def rollout_func(prompts, trainer):
    prompt_ids = trainer.processing_class(prompts)["input_ids"]
    ids, log_probs = sample(prompt_ids)
    return {
        "prompt_ids": prompt_ids,
        "completion_ids": ids,
        "logprobs": log_probs if trainer.use_vllm else None,
    }


class StandIn:
    """What `GRPOTrainer` asks of `VLLMGeneration`, in both of its modes, without a server or an engine."""

    def __init__(self, **options):
        self.syncs = 0
        info = {"model_config": {"logprobs_mode": "processed_logprobs"}}
        self.vllm_client = SimpleNamespace(get_server_info=lambda: info)

    def sync_weights(self):
        self.syncs += 1

    def generate(self, prompts, images, num_generations, profiler):
        ids, log_probs = sample(prompts)
        return prompts, ids, [[[value] for value in row] for row in log_probs], None


@pytest.fixture(autouse=True)
def _no_vllm(monkeypatch):
    monkeypatch.setattr(grpo_trainer, "VLLMGeneration", StandIn)


OPTIONS = {"vllm_importance_sampling_mode": "token_truncate", "per_device_train_batch_size": 8}
ROUTES = {
    "colocate": {"vllm_mode": "colocate"},
    "server": {"vllm_mode": "server"},
    "rollout_func": {"trainer_options": {"rollout_func": rollout_func}},
}


@pytest.fixture
def without_vllm(make_trainer, rollout):
    """The same rollouts, generated in the training process."""
    return rollout(make_trainer(trainer_options={"rollout_func": rollout_func}))


@pytest.mark.parametrize("correction", [True, False])
@pytest.mark.parametrize("route", ROUTES)
def test_coefficients_do_not_depend_on_vllm(make_trainer, rollout, without_vllm, route, correction):
    trainer = make_trainer(**OPTIONS, **ROUTES[route], use_vllm=True, vllm_importance_sampling_correction=correction)
    batch = rollout(trainer)
    assert torch.equal(batch["completion_ids"], without_vllm["completion_ids"])
    torch.testing.assert_close(batch["token_coefficients"], without_vllm["token_coefficients"], atol=1e-6, rtol=0)
    # with the correction, TRL scores the rollout and hidden states come for free; without, it does not in this setting
    assert trainer._metrics["train"]["credit/extra_forward_passes"] == [0.0 if correction else 1.0]
    assert ("importance_sampling_ratio" in batch) == correction


def test_the_correction_weights_what_the_coefficients_weigh(make_trainer, rollout):
    trainer = make_trainer(**OPTIONS, use_vllm=True)
    batch = rollout(trainer)
    ratio, mask = batch["importance_sampling_ratio"], batch["completion_mask"]
    expected = (batch["old_per_token_logps"] - batch["sampling_per_token_logps"]).exp().clamp(max=3)
    torch.testing.assert_close(ratio * mask, expected * mask)
    assert (ratio - 1)[mask.bool()].abs().max() > 0.1
    # before the first optimiser step, the policy's own ratio is 1 and nothing is clipped
    A, coefficients = batch["advantages"][:, None], batch["token_coefficients"]
    loss = -(ratio * coefficients * A * mask).sum() / mask.sum()
    assert trainer._compute_loss(trainer.model, batch).item() == pytest.approx(loss.item(), abs=1e-6)


@pytest.mark.parametrize("route", ROUTES)
def test_training_syncs_weights_and_goes_on(make_trainer, route):
    trainer = make_trainer(**OPTIONS, **ROUTES[route], use_vllm=True, max_steps=3)
    trainer.train()
    assert trainer.vllm_generation.syncs == 3
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 3
    assert all(torch.isfinite(torch.tensor(losses)))
    assert any(losses)
