"""Every token gradient and every ablation through the trainer, against explicit vectors from a plain forward."""

import math
import re
from pathlib import Path

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from delta_trl import DeltaGRPOConfig
from delta_trl.credit import RULES as NAMES
from delta_trl.credit.rules.fipo import FIPO
from delta_trl.trainer.rollout_policy import RolloutPolicy

from ..corpus import tiny
from ..credit import oracle
from ..trainers import LORA, credit, expected_coefficients, logged, plain_forward


def brute_force(trainer, batch, parameters) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients (N, …) of every valid token's log-prob with respect to `parameters`, and advantages (N,)."""
    valid = batch["completion_mask"].bool()
    _, log_probs = plain_forward(trainer.model, batch)
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters, retain_graph=True)])
        for value in log_probs[valid]
    ]
    return torch.stack(rows), batch["advantages"][:, None].expand_as(valid)[valid]


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
    neutral = batch["advantages"] == 0
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
    expected, _ = oracle.coefficients(torch.stack(rows), batch["advantages"][:, None].expand_as(valid)[valid])
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
    expected, _ = oracle.coefficients(v, batch["advantages"][:, None].expand_as(valid)[valid])
    ours = batch["token_coefficients"][valid]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float32), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("options", "of_oracle"),
    [
        (credit(assignment="hard"), {"assignment": "hard"}),
        (credit("within_side"), {"margin": "within_side"}),
        (credit(balance_sides=True), {"balance_sides": True}),
        (credit(normalize_coefficients=False), {"normalize": False}),
        (credit(lambda_min=0.0, lambda_max=1.0), {"lambda_min": 0.0, "lambda_max": 1.0}),
        (credit(refinement_steps=0), {"K": 0}),
        (credit(refinement_steps=3), {"K": 3}),
    ],
    ids=str,
)
def test_ablations_equal_the_oracle(make_trainer, rollout, options, of_oracle):
    trainer = make_trainer(**options)
    batch = rollout(trainer)
    expected = expected_coefficients(trainer.model, batch, **of_oracle)
    torch.testing.assert_close(batch["token_coefficients"], expected, atol=1e-4, rtol=0)


def test_group_scope(make_trainer, rollout):
    trainer = make_trainer(**credit(centroid_scope="group", normalize_coefficients=False))
    batch = rollout(trainer)
    for first in (0, 4):  # two groups of four
        group = {key: x[first : first + 4] for key, x in batch.items() if torch.is_tensor(x) and x.ndim}
        if group["advantages"].any():
            expected = expected_coefficients(trainer.model, group, normalize=False)
            torch.testing.assert_close(group["token_coefficients"], expected, atol=1e-4, rtol=0)


# Every rule with its defaults (fipo has a test of its own), and options that take other ways through the trainer; with
# the forward passes beyond TRL's own where one optimiser step is made for each rollout batch, if that is of interest.
TRAINED = {
    **{name: (credit(name), None) for name in NAMES if name not in ("none", "fipo")},
    "side_mean": (credit("side_mean"), 1),
    "random": (credit("random"), 0),
    "selected at random": (credit("selected", which="random", rule_kwargs={"token_gradient": "lm_head"}), 1),
    "initial temperatures": (credit(temperature_mode="initial"), 1),
    "groups": (credit(centroid_scope="group"), 1),
    "lm_head": (credit(token_gradient="lm_head"), 1),
    "topk_hidden": (credit(token_gradient="topk_hidden", token_gradient_top_k=41), 1),
    "full": (credit(token_gradient="full"), 4),
}
MISALIGNED = ("side_mean", "random", "lm_head", "full")  # the others with the slow tests
WITHOUT_CREDIT: dict[bool, list[float]] = {}  # losses, with and without passes of TRL's own


@pytest.mark.parametrize(
    ("name", "misaligned"),
    [
        pytest.param(name, misaligned, marks=pytest.mark.slow if misaligned and name not in MISALIGNED else ())
        for name in TRAINED
        for misaligned in (False, True)
    ],
)
def test_every_rule_trains(make_trainer, name, misaligned):
    options, passes = TRAINED[name]
    mode = {"steps_per_generation": 2} if misaligned else {}
    mode["reward_funcs"] = tiny.reward_every_other  # so that all tokens train, and their mean is 1
    trainer = make_trainer(**mode, **options, max_steps=2)
    trainer.train()
    losses = logged(trainer, "loss")
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))
    if misaligned not in WITHOUT_CREDIT:
        plain = make_trainer(**mode, token_credit="none", max_steps=2)
        plain.train()
        WITHOUT_CREDIT[misaligned] = logged(plain, "loss")
    applies = name not in ("stare", "taco")  # a random model's entropy is high, and none of its tokens improbable
    assert (losses != WITHOUT_CREDIT[misaligned]) == applies
    if passes is not None:
        means = logged(trainer, "credit/coefficient_mean")
        assert means == pytest.approx([1.0] * len(means))
        scoring_is_free = misaligned and passes == 1
        assert max(logged(trainer, "credit/extra_forward_passes")) == (0 if scoring_is_free else passes)
    if name == "side_mean":
        shares = [x for x in logged(trainer, "credit/between_sides_variance") if x is not None]
        assert shares == pytest.approx([1.0] * len(shares))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "none"])
def test_every_rule_of_ours_is_described_and_tested_by_itself(name):
    kind = NAMES[name].__name__
    table = [line for line in Path("docs/token_credit.md").read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{name}`" in line and f"`{kind}" in line for line in table), f"docs/token_credit.md lacks {name}"
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert re.search(rf'\b{kind}\(|\bcredit\("{name}"', tests), f"no test is of {name} alone"


@pytest.mark.parametrize(
    "rule",
    [
        credit(temperature_mode="initial"),
        credit("within_side", temperature_mode="initial"),
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
        (credit("none", balance_sides=True), "'none' does not know 'balance_sides'"),
        (credit("random", assignment="hard"), "'random' does not know 'assignment'"),
        (credit("fipo", lambda_max=1.5), "'fipo' does not know 'lambda_max'"),
        (credit("fipo", decay=0), "decay=0"),
        (credit(token_gradient_top_k=5), "token_gradient_top_k=5: without effect"),
        (credit(assignment="hard", temperature_mode="initial"), "temperature_mode='initial': without effect"),
        (credit("selected", rule="side_mean"), "equal weights"),
        (credit("selected", which="middle"), "which='middle'"),
        (credit("selected", fraction=0), "fraction=0"),
        (credit("within_side", token_gradient="full"), "WithinSide.*'full'"),
        (credit(centroid_scope="group", token_gradient="full"), "backward pass for every prompt"),
        (credit(centroid_scope="group", temperature_mode="initial"), "one per group"),
        (credit(token_gradient_top_k=0), "token_gradient_top_k=0"),
        (credit(full_scope=2), "'delta' does not know 'full_scope'"),
        (credit(assignment="medium"), "assignment='medium'"),
        (credit(lambda_max="high"), "lambda_max='high'"),
        ({"token_credit_kwargs": "high"}, "token_credit_kwargs='high': expected a mapping"),
        (credit("tests.corpus.tiny.model"), "expected a subclass of delta_trl.credit.TokenCredit"),
        (credit("tests.corpus.tiny.mode"), "has no 'mode' .did you mean 'model'"),
        (credit("no_such_module.Rule"), "no module 'no_such_module'"),
    ],
    ids=str,
)
def test_combinations_that_cannot_work(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        DeltaGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **options)


def test_full_gradients_refuse_reentrant_checkpointing(make_trainer):
    reentrant = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}
    with pytest.raises(ValueError, match="reentrant"):
        make_trainer(**credit(token_gradient="full"), **reentrant)


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


def test_balanced_sides_have_equal_means(make_trainer, rollout):
    trainer = make_trainer(**credit(balance_sides=True))
    rollout(trainer)
    positive = trainer._metrics["train"]["credit/coefficient_mean_positive"][0]
    negative = trainer._metrics["train"]["credit/coefficient_mean_negative"][0]
    plain = make_trainer()
    rollout(plain)
    spread = abs(
        plain._metrics["train"]["credit/coefficient_mean_positive"][0]
        - plain._metrics["train"]["credit/coefficient_mean_negative"][0]
    )
    assert abs(positive - negative) < max(0.02, spread)


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
    with pytest.raises(ValueError, match=r"all weights are 1. Raise steps_per_generation .* \(1\) above"):
        make_trainer(token_credit="fipo")
    rule = FIPO()
    for delta in (10.0, None):
        make_trainer(num_iterations=2, delta=delta, trainer_options={"token_credit": rule})
        assert rule == FIPO()  # what a trainer says stays with it
        assert rule._dual_clip == delta


def test_more_top_tokens_than_the_vocabulary_has(make_trainer):
    most = tiny.SIZES["vocab_size"]
    make_trainer(**credit(token_gradient="topk_hidden", token_gradient_top_k=most))
    with pytest.raises(ValueError, match=f"token_gradient_top_k={most + 1}: the model has .*{most}"):
        make_trainer(**credit(token_gradient="topk_hidden", token_gradient_top_k=most + 1))


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
