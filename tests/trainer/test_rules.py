"""Every token gradient through the trainer, against explicit vectors from a plain forward; each hook trained once."""

import math
from pathlib import Path

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from delta_trl import DeltaGRPOConfig
from delta_trl.credit import FIPO, RULES
from delta_trl.trainer.rollout_policy import RolloutPolicy

from ..corpus import tiny
from ..credit import oracle
from ..trainers import LORA, credit, expected_coefficients, logged, plain_forward, response_advantages


def brute_force(trainer, batch, parameters) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients (N, …) of every valid token's log-prob with respect to `parameters`, and advantages (N,)."""
    valid = batch["completion_mask"].bool()
    _, log_probs = plain_forward(trainer.model, batch)
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters, retain_graph=True)])
        for value in log_probs[valid]
    ]
    return torch.stack(rows), response_advantages(batch)[:, None].expand_as(valid)[valid]


@pytest.mark.parametrize("lora", [False, True], ids=["full fine-tune", "lora"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "gradient checkpointing"])
def test_full_gradients_are_exact(make_trainer, rollout, lora, checkpointing):
    trainer = make_trainer(
        **credit(token_gradient="full"),
        gradient_checkpointing=checkpointing,
        per_device_train_batch_size=4,
        steps_per_generation=2,
        trainer_options=LORA if lora else {},
    )
    batch = rollout(trainer)
    v, advantages = brute_force(trainer, batch, [p for p in trainer.model.parameters() if p.requires_grad])
    expected, _ = oracle.coefficients(v, advantages)
    ours = batch["token_coefficients"][batch["completion_mask"].bool()]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float32), atol=2e-3, rtol=0)
    assert all(p.grad is None for p in trainer.model.parameters())


def test_full_gradients_leave_out_responses_without_advantage(make_trainer, rollout, monkeypatch):
    """Their tokens get λ_min before normalisation and cost no forward; all others get what brute force gives them."""

    def second_group_always_wins(completions, **kwargs):
        rewards = tiny.reward_letters(completions)
        return [*rewards[:4], *[1.0] * 4, *rewards[8:]]

    trainer = make_trainer(
        **credit(token_gradient="full"),
        reward_funcs=second_group_always_wins,
        per_device_train_batch_size=2,
        steps_per_generation=8,
        max_steps=8,
    )
    scored = []
    log_probs_at = RolloutPolicy.log_probs_at
    monkeypatch.setattr(
        RolloutPolicy,
        "log_probs_at",
        lambda self, rows, *a: scored.extend(rows.tolist()) or log_probs_at(self, rows, *a),
    )
    batch = rollout(trainer)
    neutral = response_advantages(batch) == 0
    assert neutral.sum() == 4
    assert set(scored) == set((~neutral).nonzero().flatten().tolist())
    v, advantages = brute_force(trainer, batch, list(trainer.model.parameters()))
    expected, _ = oracle.coefficients(v, advantages)
    ours = batch["token_coefficients"][batch["completion_mask"].bool()]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float32), atol=2e-3, rtol=0)


@pytest.mark.parametrize("mode", [{}, {"num_iterations": 2}], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_lm_head_gradients_are_exact(make_trainer, rollout, mode, temperature):
    trainer = make_trainer(
        tiny.model(tie_word_embeddings=False), **mode, **credit(token_gradient="lm_head"), temperature=temperature
    )
    batch = rollout(trainer)
    valid = batch["completion_mask"].bool()
    weight = trainer.model.lm_head.weight
    with torch.no_grad():
        hidden, _ = plain_forward(trainer.model, batch)
    log_probs = (hidden @ weight.T / temperature).log_softmax(-1).gather(2, batch["completion_ids"][:, :, None])
    rows = [torch.autograd.grad(x, weight, retain_graph=True)[0].flatten() for x in log_probs[:, :, 0][valid]]
    expected, _ = oracle.coefficients(torch.stack(rows), response_advantages(batch)[:, None].expand_as(valid)[valid])
    ours = batch["token_coefficients"][valid]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float32), atol=1e-3, rtol=0)


def test_topk_hidden_gradients(make_trainer, rollout):
    trainer = make_trainer(**credit(token_gradient="topk_hidden", token_gradient_top_k=3))
    batch = rollout(trainer)
    valid, weight = batch["completion_mask"].bool(), trainer.model.lm_head.weight
    with torch.no_grad():
        hidden, _ = plain_forward(trainer.model, batch)
        top = (hidden[valid] @ weight.T).topk(3, dim=1)
        mixture = (top.values.softmax(1)[:, :, None] * weight[top.indices]).sum(1)
        v = weight[batch["completion_ids"][valid]] - mixture
    expected, _ = oracle.coefficients(v, response_advantages(batch)[:, None].expand_as(valid)[valid])
    ours = batch["token_coefficients"][valid]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float32), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("options", "of_oracle"),
    [
        (credit("within_side", refinement_steps=0), {"margin": "within_side", "K": 0}),
        (credit(lambda_min=0.0, lambda_max=1.0, refinement_steps=3), {"lambda_min": 0.0, "lambda_max": 1.0, "K": 3}),
        (credit(assignment="hard", normalize_coefficients=False), {"assignment": "hard", "normalize": False}),
    ],
    ids=str,
)
def test_options_arrive(make_trainer, rollout, options, of_oracle):
    """Tests of the algorithm have all of them."""
    trainer = make_trainer(**options)
    batch = rollout(trainer)
    expected = expected_coefficients(trainer.model, batch, **of_oracle)
    torch.testing.assert_close(batch["token_coefficients"], expected, atol=1e-4, rtol=0)


# Options that take different ways through the trainer, with the forward passes beyond TRL's own where one optimiser
# step is made for each rollout batch.
PASSES = {
    "output_row": (credit(), 1),
    "lm_head": (credit(token_gradient="lm_head"), 1),
    "topk_hidden": (credit(token_gradient="topk_hidden", token_gradient_top_k=41), 1),
    "full": (credit(token_gradient="full"), 4),
    "side_weights": (credit("side_weights"), 0),
    "side_mean": (credit("side_mean"), 1),
    "selected at random": (credit("selected", which="random", rule_kwargs={"token_gradient": "lm_head"}), 1),
}


@pytest.mark.parametrize("misaligned", [False, True])
@pytest.mark.parametrize(("options", "passes"), PASSES.values(), ids=PASSES)
def test_forward_passes(make_trainer, rollout, options, passes, misaligned):
    mode = {"steps_per_generation": 2} if misaligned else {}
    trainer = make_trainer(**mode, **options, reward_funcs=tiny.reward_every_other)  # so that all tokens train
    batch = rollout(trainer)
    metrics = trainer._metrics["train"]
    assert metrics["credit/coefficient_mean"] == pytest.approx([1.0])
    assert metrics["credit/extra_forward_passes"] == [0 if misaligned and passes == 1 else passes]
    assert batch["token_coefficients"].std() > 0
    if options["token_credit"] == "side_mean":
        assert metrics["credit/between_sides_variance"] == pytest.approx([1.0])


@pytest.mark.parametrize("mode", [{}, {"steps_per_generation": 2}], ids=["aligned", "misaligned"])
def test_a_rule_of_rollouts_trains(make_trainer, mode):
    losses = []
    for name in ("delta", "none"):
        trainer = make_trainer(**mode, token_credit=name, max_steps=2)
        trainer.train()
        losses.append(logged(trainer, "loss"))
        assert len(losses[-1]) == 2
        assert all(map(math.isfinite, losses[-1]))
    assert losses[0] != losses[1]


@pytest.mark.parametrize("name", [name for name in RULES if name != "none"])
def test_every_rule_is_described(name):
    table = [line for line in Path("docs/token_credit.md").read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{name}`" in line and f"`{RULES[name].__name__}" in line for line in table)


@pytest.mark.parametrize(
    "rule",
    [
        credit(temperature_mode="initial"),
        credit("side_mean", rule_kwargs={"temperature_mode": "initial"}),
    ],
    ids=str,
)
def test_initial_temperatures_are_kept_and_survive_a_checkpoint(make_trainer, tmp_path, rule):
    options = {**rule, "save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    whole = make_trainer(**options)
    whole.train()
    first = logged(whole, "credit/temperature_positive")[0]
    assert logged(whole, "credit/temperature_positive") == [first] * 4
    saved = torch.load(tmp_path / "run" / "checkpoint-2" / "token_credit.pt")
    assert saved["state"]["temperatures"][0] == first
    resumed = make_trainer(**options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert logged(resumed, "loss") == logged(whole, "loss")


def test_another_rule_s_state_is_not_gone_on_with(make_trainer, tmp_path, caplog):
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 3}
    make_trainer(**options, **credit(temperature_mode="initial")).train()
    checkpoint = str(tmp_path / "run" / "checkpoint-2")
    adaptive = make_trainer(**options)
    adaptive.train(resume_from_checkpoint=checkpoint)
    fresh = make_trainer(**options)
    fresh.train()
    assert logged(adaptive, "credit/temperature_positive")[-1] == pytest.approx(
        logged(fresh, "credit/temperature_positive")[-1], rel=0.5
    )
    assert adaptive.token_credit.state_dict() == {}
    assert "starts without one" not in caplog.text
    make_trainer(**options, **credit("within_side", temperature_mode="initial")).train(
        resume_from_checkpoint=checkpoint
    )
    assert (
        "delta_trl.credit.rules.delta.DelTA: delta_trl.credit.rules.within_side.WithinSide starts without one"
        in caplog.text
    )


def test_a_rule_starts_anew_with_every_training(make_trainer):
    trainer = make_trainer(**credit(temperature_mode="initial"))
    trainer.token_credit.load_state_dict({"temperatures": (7.0, 8.0)})  # of another training
    trainer.train()
    assert logged(trainer, "credit/temperature_positive")[0] != 7.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (credit("none", lambda_max=1.5), "'none' does not know 'lambda_max'"),
        (credit("fipo", lambda_max=1.5), "'fipo' does not know 'lambda_max'"),
        (credit("entropy"), "token_credit='entropy'"),
        (credit(lambda_max="high"), "lambda_max='high'"),
        ({"token_credit_kwargs": "high"}, "token_credit_kwargs='high'"),
        (credit("tests.corpus.tiny.model"), "expected a subclass of delta_trl.credit.TokenCredit"),
        (credit("tests.corpus.tiny.mode"), "has no 'mode' .did you mean 'model'"),
        (credit("no_such_module.Rule"), "no module 'no_such_module'"),
        ({"hidden_state_cache": "recompute"}, "hidden_state_cache='recompute'"),
    ],
    ids=str,
)
def test_options_that_do_not_exist(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        DeltaGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **options)


@pytest.mark.parametrize("which", ["top", "bottom", "random"])
def test_nothing_is_selected_without_contrast(make_trainer, rollout, which):
    rewards = {"reward_funcs": lambda completions, **_: [1.0] * len(completions)}
    trainer = make_trainer(**credit("selected", which=which), **rewards)
    batch = rollout(trainer)
    assert (batch["token_coefficients"][batch["completion_mask"].bool()] == 1).all()


def test_full_gradients_without_a_valid_token(make_trainer):
    trainer = make_trainer(**credit(token_gradient="full"), mask_truncated_completions=True, max_completion_length=1)
    trainer.train()
    assert logged(trainer, "credit/neutral") == [1.0, 1.0]
    assert logged(trainer, "credit/extra_forward_passes") == [0.0, 0.0]


@pytest.mark.parametrize("gradient", ["lm_head", "topk_hidden"])
def test_an_unknown_transformation_of_the_logits_is_refused(make_trainer, gradient):
    trainer = make_trainer(**credit(token_gradient=gradient))
    trainer.model.config.logit_scale = 50.0  # the config says what the model does not do
    with pytest.raises(ValueError, match="does not reproduce the model's log-probabilities"):
        trainer.train()


def test_fipo_weighs_by_the_present_policy(make_trainer, rollout):
    """The loss is GRPOTrainer's with advantages weighted by hand; on the rollout's own policy it is plain DAPO."""
    trainer = make_trainer(token_credit="fipo", num_iterations=2)
    batch = rollout(trainer)
    assert "token_coefficients" not in batch
    grpo = GRPOTrainer._compute_loss
    unmoved = trainer._compute_loss(trainer.model, batch)
    assert unmoved.item() == pytest.approx(grpo(trainer, trainer.model, batch).item(), abs=1e-6)

    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(0.03 * torch.randn_like(parameter))
        _, log_probs = plain_forward(trainer.model, batch)
    valid = batch["completion_mask"].bool()
    weights = FIPO().weights(log_probs, batch["old_per_token_logps"], batch["advantages"], valid)
    assert (weights[valid] > 1.01).any()
    by_hand = grpo(trainer, trainer.model, {**batch, "advantages": batch["advantages"][:, None] * weights})
    ours = trainer._compute_loss(trainer.model, batch)
    assert ours.item() == pytest.approx(by_hand.item(), abs=1e-6)
    assert abs(by_hand.item() - grpo(trainer, trainer.model, batch).item()) > 1e-4
    assert batch["advantages"].dim() == 1  # the buffered batch is used again


def test_fipo_needs_a_policy_that_moves(make_trainer):
    with pytest.raises(ValueError, match="steps_per_generation"):
        make_trainer(token_credit="fipo")


def test_fipo_trains(make_trainer):
    trainer = make_trainer(token_credit="fipo", num_iterations=3, max_steps=6, delta=10.0)
    trainer.train()
    means = logged(trainer, "credit/fipo_weight_mean")
    assert means[0] == 1
    assert max(means) > 1


def test_forking_tokens_and_sapo_are_options_of_trl(make_trainer):
    for options in ({"top_entropy_quantile": 0.2}, {"loss_type": "sapo", "sapo_temperature_neg": 1.05}):
        ours = make_trainer(**options, token_credit="none", trim_padding=False)
        ours.train()
        theirs = make_trainer(**options, trainer_class=GRPOTrainer, config_class=GRPOConfig, epsilon_high=0.28)
        theirs.train()
        assert logged(ours, "loss") == logged(theirs, "loss")
