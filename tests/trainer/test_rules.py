"""Every token gradient through the trainer, against explicit vectors from a plain forward; each hook trained once."""

from pathlib import Path

import pytest
import torch
from torch.nn.utils import parameters_to_vector
from trl import GRPOTrainer

from delta_trl.credit import FIPO, RULES

from ..corpus import tiny
from ..credit import oracle
from ..trainers import LORA, MISALIGNED, credit, move, plain_forward, ragged, response_advantages, valid_tokens


SPLIT = {"per_device_train_batch_size": 4, "steps_per_generation": 2}


def equals_oracle(batch, vectors: torch.Tensor, atol: float = 1e-3) -> None:
    """The coefficients of a rollout batch are those of vectors (N, d) of its valid tokens."""
    valid = valid_tokens(batch)
    advantages = response_advantages(batch)[:, None].expand_as(valid)
    coefficients, _ = oracle.coefficients(vectors, advantages[valid])
    expected = torch.tensor(coefficients, dtype=torch.float32)
    torch.testing.assert_close(batch["token_coefficients"][valid], expected, atol=atol, rtol=0)


def gradients(trainer, batch, parameters, temperature=1.0) -> torch.Tensor:
    """Those (N, …) of every valid token's log-prob with respect to `parameters`, one by one."""
    _, log_probs = plain_forward(trainer.model, batch, temperature)
    rows = []
    for log_prob in log_probs[valid_tokens(batch)]:
        of_parameters = torch.autograd.grad(log_prob, parameters, retain_graph=True)
        rows.append(parameters_to_vector(of_parameters))
    return torch.stack(rows)


@pytest.mark.parametrize(
    "options",
    [
        {**SPLIT, "max_completion_length": 24, "rollout_func": ragged},
        {"activation_checkpointing": True, **LORA},
    ],
    ids=["full fine-tune", "lora"],
)
def test_full_gradients_are_exact(make_trainer, rollout, options):
    trainer = make_trainer(**credit(token_gradient="full"), **options)
    batch = rollout(trainer)
    trainable = [p for p in trainer.model.parameters() if p.requires_grad]
    equals_oracle(batch, gradients(trainer, batch, trainable), atol=2e-3)
    for parameter in trainer.model.parameters():
        assert parameter.grad is None
    assert trainer._metrics["train"]["credit/extra_forward_passes"] == [4]  # beyond TRL's own


def test_full_gradients_take_two_forwards_for_a_score_under_autocast(make_trainer, rollout):
    """And one for a sum."""
    trainer = make_trainer(**credit(token_gradient="full"), bf16=True)
    rollout(trainer)
    assert trainer._metrics["train"]["credit/extra_forward_passes"] == [6]


def test_lm_head_gradients_are_exact(make_trainer, rollout):
    options = {**MISALIGNED, **credit(token_gradient="lm_head"), "temperature": 0.6}
    trainer = make_trainer(tiny.model(tie_word_embeddings=False), **options)
    batch = rollout(trainer)
    of_head = gradients(trainer, batch, [trainer.model.lm_head.weight], temperature=0.6)
    equals_oracle(batch, of_head)


def test_every_rule_is_described():
    page = Path("docs/token_credit.md").read_text()
    for name in RULES.keys() - {"none"}:
        assert f"\n| `{name}` | `{RULES[name].__name__}" in page


@pytest.mark.parametrize("token_gradient", ["topk_hidden", "lm_head"])
def test_an_unknown_transformation_of_the_logits_is_refused(make_trainer, token_gradient):
    trainer = make_trainer(**credit(token_gradient=token_gradient))
    trainer.model.config.logit_scale = 50.0  # the config says what the model does not do
    with pytest.raises(ValueError, match="log-probabilities"):
        trainer.train()


def test_fipo_weighs_by_the_present_policy(make_trainer, rollout):
    """The loss is GRPOTrainer's with advantages weighted by hand; on the rollout's own policy it is plain DAPO."""
    trainer = make_trainer(token_credit="fipo", num_iterations=2)
    model = trainer.model
    batch = rollout(trainer)
    assert "token_coefficients" not in batch
    advantages = batch["advantages"]

    def loss_of_grpo(advantages: torch.Tensor) -> float:
        weighted = {**batch, "advantages": advantages}
        return GRPOTrainer._compute_loss(trainer, model, weighted).item()

    unmoved = trainer._compute_loss(model, batch).item()
    assert unmoved == pytest.approx(loss_of_grpo(advantages), abs=1e-6)

    move(model)
    with torch.no_grad():
        _, log_probs = plain_forward(model, batch)
    valid = valid_tokens(batch)
    weights = FIPO().weights(log_probs, batch["old_per_token_logps"], advantages, valid)
    assert weights[valid].max() > 1.01
    by_hand = loss_of_grpo(advantages[:, None] * weights)
    moved = trainer._compute_loss(model, batch).item()
    assert moved == pytest.approx(by_hand, abs=1e-6)
    assert abs(by_hand - loss_of_grpo(advantages)) > 1e-4
    mean = weights[valid].mean().item()
    logged_means = trainer._metrics["train"]["credit/fipo_weight_mean"]
    assert logged_means == pytest.approx([1.0, mean])
    model.eval()
    evaluated = trainer._compute_loss(model, batch).item()
    assert evaluated == pytest.approx(loss_of_grpo(advantages), abs=1e-6)
    assert len(logged_means) == 2
    assert batch["advantages"] is advantages  # the buffered batch is used again


def test_fipo_needs_a_policy_that_moves(make_trainer):
    with pytest.raises(ValueError, match="steps_per_generation"):
        make_trainer(token_credit="fipo")
