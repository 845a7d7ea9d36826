"""
What the trainer relies on in TRL, one canary each. If one fails, TRL changed under us: its message says what to adapt.
"""

import inspect

import torch
from trl import GRPOConfig, GRPOTrainer

from . import tiny


def test_scoring_pass_signature():
    parameters = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    assert parameters[:5] == ["self", "model", "input_ids", "attention_mask", "logits_to_keep"], (
        "DeltaGRPOTrainer._get_per_token_logps_and_entropies takes these by position"
    )
    assert {"batch_size", "pixel_values", "image_grid_thw", "num_images"} <= set(parameters), (
        "DeltaGRPOTrainer._score_rollout passes the batch's multimodal inputs by these names"
    )


def test_batch_keys_and_old_log_probs(make_trainer, rollout, monkeypatch):
    returned = []
    score = GRPOTrainer._get_per_token_logps_and_entropies
    monkeypatch.setattr(
        GRPOTrainer,
        "_get_per_token_logps_and_entropies",
        lambda *a, **k: returned.append(score(*a, **k)) or returned[-1],
    )
    grpo = {"trainer_class": GRPOTrainer, "config_class": GRPOConfig}
    batch = rollout(make_trainer(**grpo, num_iterations=2))
    assert {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages"} <= set(batch)
    assert batch["advantages"].shape == (8,)
    assert batch["old_per_token_logps"] is returned[0][0], (
        "DeltaGRPOTrainer recognises the policy's own scoring pass by the identity of its log-probabilities"
    )
    assert "old_per_token_logps" not in rollout(make_trainer(**grpo))


def test_backbone_hook_fires_in_the_scoring_pass(make_trainer, rollout):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, num_iterations=2)
    shapes = []
    batch_size, width = 8, []
    trainer.model.base_model.register_forward_hook(
        lambda module, args, output: shapes.append(tuple(output.last_hidden_state.shape))
    )
    batch = rollout(trainer)
    width = batch["prompt_ids"].size(1) + batch["completion_ids"].size(1)
    assert shapes[-1] == (batch_size, width, 32), "the fused LM head no longer calls `model.base_model`"


def test_compute_loss_takes_an_advantage_per_token(make_trainer, rollout):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    batch = rollout(trainer)
    per_sequence = trainer._compute_loss(trainer.model, batch)
    per_token = batch["advantages"][:, None].expand_as(batch["completion_ids"])
    assert torch.equal(trainer._compute_loss(trainer.model, {**batch, "advantages": per_token}), per_sequence)


def test_extra_batch_entries_are_shuffled_and_split_along(make_trainer):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, steps_per_generation=2)
    generate = trainer._generate_and_score_completions

    def with_extra(inputs):
        batch = generate(inputs)
        return {**batch, "token_coefficients": batch["completion_ids"].float()}

    trainer._generate_and_score_completions = with_extra
    trainer.model.train()
    slices = []
    for _ in range(2):
        slices.append(trainer._prepare_inputs(next(iter(trainer.get_train_dataloader()))))
        trainer._step += 1
    for piece in slices:
        assert len(piece["completion_ids"]) == 8
        assert torch.equal(piece["token_coefficients"], piece["completion_ids"].float())


def test_metrics_and_log_columns_exist(make_trainer, rollout):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    rollout(trainer)
    assert trainer._metrics["train"]["reward"]
    assert len(trainer._logs["prompt"]) == 8
    trainer._logs["extra"]["column"].extend([1] * 100)
    assert len(trainer._logs["extra"]["column"]) == 8, "columns of the completions table keep one rollout batch"


def test_defaults_we_inherit():
    config = GRPOConfig("unused", use_cpu=True, bf16=False)
    assert (config.loss_type, config.epsilon, config.beta) == ("dapo", 0.2, 0.0)


def test_reward_functions_are_called_by_keyword(make_trainer, rollout):
    calls = []

    def reward(*args, **kwargs):
        calls.append((args, set(kwargs)))
        return [0.0] * len(kwargs["completions"])

    rollout(make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, reward_funcs=reward))
    args, names = calls[0]
    assert args == ()
    assert names == {
        "prompts",
        "completions",
        "completion_ids",
        "solution",
        "trainer_state",
        "log_extra",
        "log_metric",
    }


def test_tiny_prompts_differ_in_length():
    """Left padding is exercised only if they do."""
    assert len({len(prompt) for prompt in tiny.dataset()["prompt"]}) > 1
