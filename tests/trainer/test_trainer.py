"""The trainer against the paper's objective, against TRL itself, and with every option that it must support."""

import math

import numpy as np
import pytest
import torch
from transformers import Gemma2Config, GPT2Config, LlamaConfig, Olmo2Config, Qwen3Config
from trl import GRPOConfig, GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.credit import DelTA

from ..corpus import tiny
from ..credit import oracle
from ..trainers import (
    ALIGNED,
    LORA,
    MISALIGNED,
    credit,
    expected_coefficients,
    logged,
    plain_forward,
    response_advantages,
    rollout_with_environment,
)


# --- the objective ---


def test_loss_gradient_is_the_papers(make_trainer, rollout):
    """The self-normalised DAPO surrogate of the paper, written out and differentiated by autograd."""
    trainer = make_trainer(**MISALIGNED, **credit(lambda_min=0.5, lambda_max=1.5, refinement_steps=2))
    batch = rollout(trainer)
    coefficients = expected_coefficients(trainer.model, batch, K=2, lambda_min=0.5, lambda_max=1.5)

    with torch.no_grad():  # a later optimiser step: the policy has moved
        for parameter in trainer.model.parameters():
            parameter.add_(0.03 * torch.randn_like(parameter))
    trainer._compute_loss(trainer.model, batch).backward()
    ours = [parameter.grad.clone() for parameter in trainer.model.parameters()]
    trainer.model.zero_grad()

    _, log_probs = plain_forward(trainer.model, batch)
    ratio = (log_probs - batch["old_per_token_logps"]).exp()
    clipped = ratio.clamp(1 - 0.2, 1 + 0.28)
    assert ((ratio != clipped) & batch["completion_mask"].bool()).any()
    A = response_advantages(batch)[:, None]
    surrogate = coefficients * torch.min(ratio * A, clipped * A)
    (-(surrogate * batch["completion_mask"]).sum() / batch["completion_mask"].sum()).backward()
    for grad, parameter in zip(ours, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(grad, parameter.grad, rtol=1e-4, atol=1e-7)


def test_no_credit_is_grpo_bit_for_bit(make_trainer):
    trainers = []
    ours = {"token_credit": "none", "trim_padding": False}
    for options in (ours, {"trainer_class": GRPOTrainer, "config_class": GRPOConfig}):
        trainers.append(make_trainer(**options, steps_per_generation=2, max_steps=4, epsilon_high=0.28))
        trainers[-1].train()
    assert logged(trainers[0], "loss") == logged(trainers[1], "loss")
    for ours, theirs in zip(*(trainer.model.parameters() for trainer in trainers), strict=True):
        assert torch.equal(ours, theirs)
    assert not any(key.startswith("credit/") for entry in trainers[0].state.log_history for key in entry)


@pytest.mark.parametrize("mode", [ALIGNED, MISALIGNED], ids=["aligned", "misaligned"])
def test_equal_bounds_train_as_grpo(make_trainer, mode):
    ours = make_trainer(**mode, **credit(lambda_min=1.0, lambda_max=1.0))
    ours.train()
    theirs = make_trainer(**mode, trainer_class=GRPOTrainer, config_class=GRPOConfig, epsilon_high=0.28)
    theirs.train()
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), abs=1e-7)


def test_plain_grpo_config_gets_the_default_credit(make_trainer):
    plain = make_trainer(config_class=GRPOConfig, epsilon_high=0.28)
    plain.train()
    delta = make_trainer()
    delta.train()
    assert logged(plain, "loss") == logged(delta, "loss")
    assert len(logged(plain, "credit/coefficient_mean")) == 2


LOSSES = [
    *((loss_type, "token") for loss_type in ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo")),
    ("cispo", "sequence"),
    ("vespo", "sequence"),
]


def defined_loss(trainer, batch, coefficients) -> torch.Tensor:
    """The losses as their papers define them, each token's term times its coefficient."""
    args, mask = trainer.args, batch["completion_mask"].bool()
    _, log_probs = plain_forward(trainer.model, batch)
    shift = (log_probs - batch["old_per_token_logps"]) * mask
    lengths, A = mask.sum(dim=1, keepdim=True), response_advantages(batch)[:, None]
    ratio = shift.exp() if args.importance_sampling_level == "token" else (shift.sum(1, True) / lengths).exp()
    if args.loss_type == "cispo":
        terms = ratio.detach().clamp(max=args.epsilon_high) * A * log_probs
    elif args.loss_type == "vespo":
        k, lam = torch.where(A >= 0, 2.0, 3.0), torch.where(A >= 0, 3.0, 2.0)
        w = shift.detach().sum(dim=1, keepdim=True).exp()
        terms = (lam * (1 - w)).exp() * w**k * A * log_probs
    elif args.loss_type == "sapo":
        tau = torch.where(A > 0, args.sapo_temperature_pos, args.sapo_temperature_neg)
        terms = torch.sigmoid(tau * (ratio - 1)) * 4 / tau * A
    else:
        terms = torch.min(ratio * A, ratio.clamp(1 - args.epsilon, 1 + args.epsilon_high) * A)
    terms = coefficients * terms * mask
    if args.loss_type in ("grpo", "sapo"):
        return -(terms.sum(dim=1, keepdim=True) / lengths).mean()
    if args.loss_type == "luspo":
        return -terms.sum(dim=1).mean()
    if args.loss_type == "dr_grpo":
        return -terms.sum() / (len(terms) * args.max_completion_length)
    return -terms.sum() / mask.sum()


@pytest.mark.parametrize(("loss_type", "level"), LOSSES)
def test_every_loss_credits_tokens(make_trainer, rollout, loss_type, level):
    """
    The gradient is that of the definition; reversing the coefficients within responses changes it.
    """
    trainer = make_trainer(
        **MISALIGNED, loss_type=loss_type, importance_sampling_level=level, max_completion_length=6, delta=10.0
    )
    batch = rollout(trainer)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(0.03 * torch.randn_like(parameter))

    def gradient(loss):
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(trainer.model.parameters()))])

    mask = batch["completion_mask"].bool()
    coefficients = torch.zeros(mask.shape).masked_scatter(mask, 0.2 + torch.rand(int(mask.sum())))
    reversed_ = coefficients.clone()
    for row, valid in enumerate(mask):
        reversed_[row, valid] = coefficients[row, valid].flip(0)
    gradients = []
    for weights in (coefficients, reversed_):
        advantages = response_advantages(batch)[:, None] * weights
        ours = trainer._compute_loss(trainer.model, {**batch, "advantages": advantages})
        gradients.append(gradient(ours))
        expected = defined_loss(trainer, batch, weights)
        assert ours.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
        torch.testing.assert_close(gradients[-1], gradient(expected), rtol=1e-3, atol=1e-6)
    assert (gradients[0] - gradients[1]).norm() > 0.05 * gradients[0].norm()


def test_a_plain_config_with_such_a_loss_trains_as_grpo(make_trainer, caplog):
    """Code written for GRPOTrainer runs with the class swapped; nobody has asked for credit there."""
    options = {"importance_sampling_level": "sequence", "config_class": GRPOConfig}
    ours = make_trainer(**options)
    assert "Trains without token credit" in caplog.text
    ours.train()
    theirs = make_trainer(**options, trainer_class=GRPOTrainer)
    theirs.train()
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), abs=1e-7)


def test_two_reward_functions_of_one_name(make_trainer, rollout):
    """TRL's columns mix them up; what rules and records get does not."""

    def same_name(value):
        def reward(completions, **kwargs):
            return [value * (i % 4) for i in range(len(completions))]

        return reward

    seen = []
    trainer = make_trainer(reward_funcs=[same_name(1.0), same_name(-3.0)], trainer_options={"token_credit": "random"})
    trainer.token_credit.of_rollout = lambda tokens: seen.append(tokens)
    rollout(trainer)
    assert seen[0].rewards.tolist() == [-2.0 * (row % 4) for row in seen[0].row.tolist()]


@pytest.mark.parametrize("value", [0.3, 66.7, 998.9])
def test_equal_rewards_that_are_not_exact_are_no_contrast(make_trainer, rollout, value):
    """0.3 is no binary fraction: the mean of several is another number, and TRL divides the difference by 1e-4."""
    options = {"num_generations": 8, "per_device_train_batch_size": 16}
    others = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    ours = rollout(make_trainer(reward_funcs=lambda completions, **_: [value] * 7 + [None, *others], **options))
    exact = make_trainer(reward_funcs=lambda completions, **_: [1.0] * 7 + [None, *others], **options)
    expected = rollout(exact)
    assert not ours["advantages"][:8].any()
    torch.testing.assert_close(ours["token_coefficients"], expected["token_coefficients"])


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_other_advantages_stay_as_they_are(make_trainer, rollout, aggregation, scale):
    first, second = [0.3, 0.1, 0.1, 0.3, 0.0, 1.0, None, None], [0.1, 0.3, 0.3, 0.1, 0.5, 0.5, 0.5, None]
    funcs = [lambda completions, **_: list(first), lambda completions, **_: list(second)]
    options = {"multi_objective_aggregation": aggregation, "scale_rewards": scale, "reward_funcs": funcs}
    ours = response_advantages(rollout(make_trainer(**options)))
    theirs = rollout(make_trainer(**options, trainer_class=GRPOTrainer, config_class=GRPOConfig))["advantages"]
    changed = (ours - theirs).abs() > 1e-6
    assert not ours[changed].any()
    assert theirs[changed].abs().max() < 1e-2 if changed.any() else True
    assert ours[4:7].abs().max() > 0.1


# --- where the hidden states come from ---

CONFIGS = {
    "qwen3": Qwen3Config(**tiny.SIZES, head_dim=8),
    "llama": LlamaConfig(**tiny.SIZES),
    "gemma2": Gemma2Config(**tiny.SIZES, head_dim=8, final_logit_softcapping=30.0, query_pre_attn_scalar=8),
    "gpt2": GPT2Config(
        vocab_size=tiny.SIZES["vocab_size"], n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    ),
    "olmo2": Olmo2Config(**tiny.SIZES),
}


def spy_on_tokens(monkeypatch) -> list:
    """What every rollout batch is credited by."""
    seen, of_rollout = [], DelTA.of_rollout
    monkeypatch.setattr(DelTA, "of_rollout", lambda self, tokens: seen.append(tokens) or of_rollout(self, tokens))
    return seen


@pytest.mark.parametrize("mode", [ALIGNED, MISALIGNED], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("architecture", CONFIGS)
def test_recorded_states_are_a_plain_forwards(make_trainer, rollout, monkeypatch, architecture, mode):
    trainer = make_trainer(
        tiny.model(CONFIGS[architecture]), **mode, per_device_train_batch_size=4, steps_per_generation=2
    )
    seen = spy_on_tokens(monkeypatch)
    batch = rollout(trainer)
    assert len(batch["prompt_ids"]) == 8  # two micro-batches
    assert batch["prompt_mask"].sum(dim=1).unique().numel() > 1  # left padding

    with torch.no_grad():
        hidden, log_probs = plain_forward(trainer.model, batch)
    valid = batch["completion_mask"].bool()
    torch.testing.assert_close(torch.cat(seen[0].hidden.blocks), hidden[valid], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(seen[0].log_probs, log_probs[valid], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        batch["token_coefficients"], expected_coefficients(trainer.model, batch), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({}, 1),
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2}, 1),
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2, "num_iterations": 2}, 1),
        ({"steps_per_generation": 2}, 0),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4}, 0),
        ({"num_iterations": 2}, 0),
        ({"beta": 0.1}, 1),
        ({"beta": 0.1, "num_iterations": 2}, 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_extra_forward_passes(make_trainer, rollout, monkeypatch, tmp_path, options, passes, lora):
    """Counted at the model, not taken from the metric alone; coefficients are the policy's, not the reference's."""
    tiny.model().save_pretrained(tmp_path / "model")  # TRL loads the reference model from the policy's path
    trainer = make_trainer(str(tmp_path / "model"), **options, max_steps=1, trainer_options=LORA if lora else {})
    rollout(trainer)  # asks the model first what may be trimmed
    rollouts, scored = [], []
    generate = GRPOTrainer._generate_and_score_completions
    monkeypatch.setattr(
        GRPOTrainer, "_generate_and_score_completions", lambda *a: rollouts.append(generate(*a)) or rollouts[-1]
    )
    score = GRPOTrainer._get_per_token_logps_and_entropies

    def scoring(self, model, input_ids, *args, **kwargs):
        if not torch.is_grad_enabled():
            scored.append(len(input_ids))
        return score(self, model, input_ids, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", scoring)
    expected, claimed = [], []
    log_rollout = DeltaGRPOTrainer._log_rollout

    def logging(self, *args):
        log_rollout(self, *args)
        expected.append(expected_coefficients(self.model, rollouts[-1]))
        claimed.append(self._metrics["train"]["credit/extra_forward_passes"][-1])

    monkeypatch.setattr(DeltaGRPOTrainer, "_log_rollout", logging)
    trainer.train()
    misaligned = trainer.args.gradient_accumulation_steps % (
        trainer.args.steps_per_generation * trainer.args.num_iterations
    )
    without_credit = len(rollouts) * (bool(misaligned) + (trainer.beta > 0))
    assert sum(scored) / len(rollouts[0]["prompt_ids"]) == without_credit + sum(claimed)
    assert claimed[0] == passes
    assert max(claimed) == passes
    for batch, coefficients in zip(rollouts, expected, strict=True):
        torch.testing.assert_close(batch["token_coefficients"], coefficients, atol=1e-4, rtol=0)


def test_autocast_keeps_states_as_the_head_sees_them(make_trainer, rollout, monkeypatch):
    """float32 weights under bfloat16 autocast: states are kept in bfloat16, half the memory."""
    seen = spy_on_tokens(monkeypatch)
    batch = rollout(make_trainer(**MISALIGNED, bf16=True))
    [kept] = seen[0].hidden.blocks
    assert kept.dtype == torch.bfloat16
    assert len(kept) == batch["completion_mask"].sum()
    assert batch["token_coefficients"].isfinite().all()


# --- options and batches it must live with ---


OPTIONS = {
    "beta with LoRA": {"beta": 0.1, "trainer_options": LORA},
    "entropy quantile": {"top_entropy_quantile": 0.2},
    "iterations": {"num_iterations": 3},
    "truncated masked": {"mask_truncated_completions": True},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "LoRA and gradient checkpointing": {"gradient_checkpointing": True, "trainer_options": LORA},
    "padding": {"pad_to_multiple_of": 16},
    "tool tokens": {"trainer_options": {"rollout_func": rollout_with_environment}},
    "off-policy mask": {"off_policy_mask_threshold": 0.5, "num_iterations": 2},
    "temperature": {"temperature": 0.7},
    "rewards normalised first": {"multi_objective_aggregation": "normalize_then_sum"},
}


@pytest.mark.parametrize("number", range(len(OPTIONS)), ids=OPTIONS)
def test_options(make_trainer, monkeypatch, number):
    """Half of them with TRL's own scoring pass: the two ways to score are compared by themselves above."""
    mode = {"steps_per_generation": 2} if number % 2 else ALIGNED
    trainer = make_trainer(**{**mode, **list(OPTIONS.values())[number]})
    batches = []
    generate = DeltaGRPOTrainer._generate_and_score_completions
    monkeypatch.setattr(
        DeltaGRPOTrainer, "_generate_and_score_completions", lambda *a: batches.append(generate(*a)) or batches[-1]
    )
    before = [parameter.clone() for parameter in trainer.model.parameters() if parameter.requires_grad]
    trainer.train()
    after = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
    assert any(not torch.equal(x, y) for x, y in zip(before, after, strict=True))
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))
    for batch in batches:
        coefficients, valid = batch["token_coefficients"], batch["completion_mask"].bool()
        valid = valid & batch["tool_mask"].bool() if "tool_mask" in batch else valid
        assert coefficients.dtype == torch.float32
        assert coefficients.shape == valid.shape
        assert (coefficients[~valid] == 0).all()
        assert coefficients[valid].mean().item() == pytest.approx(1, abs=1e-5) or not valid.any()


def test_temperature_reaches_the_probabilities(make_trainer, rollout):
    trainer = make_trainer(**MISALIGNED, temperature=0.5)
    batch = rollout(trainer)
    with torch.no_grad():
        hidden, _ = plain_forward(trainer.model, batch)
        log_probs = (trainer.model.lm_head(hidden) / 0.5).log_softmax(-1)
    log_probs = log_probs.gather(2, batch["completion_ids"][:, :, None])[:, :, 0]
    valid = batch["completion_mask"].bool()
    v = (1 - log_probs.exp())[valid][:, None] * hidden[valid]
    expected, _ = oracle.coefficients(v, response_advantages(batch)[:, None].expand_as(valid)[valid])
    np.testing.assert_allclose(batch["token_coefficients"][valid].numpy(), expected, atol=1e-4)


REWARDS = {
    "all equal": lambda completions, **_: [1.0] * len(completions),
    "unscorable": lambda completions, **_: [None] * len(completions),
    "some unscorable": lambda completions, **_: [None if i % 3 else float(i % 2) for i in range(len(completions))],
}


@pytest.mark.parametrize("name", REWARDS)
def test_degenerate_rewards(make_trainer, name):
    trainer = make_trainer(reward_funcs=REWARDS[name])
    trainer.train()
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))
    if name == "all equal":  # what is undefined is left out
        assert all(math.isfinite(value) for entry in trainer.state.log_history for value in entry.values())
    neutral = logged(trainer, "credit/neutral")
    assert neutral == [1.0, 1.0] if name != "some unscorable" else all(x in (0.0, 1.0) for x in neutral)


def test_no_valid_token_at_all(make_trainer):
    """Every completion truncated and masked: nothing to credit, nothing to learn, nothing breaks."""
    trainer = make_trainer(mask_truncated_completions=True, max_completion_length=1)
    trainer.train()
    assert logged(trainer, "credit/neutral") == [1.0, 1.0]
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))


# --- evaluation and logs ---


def test_evaluation_is_trls(make_trainer):
    metrics = []
    for options in ({}, {"trainer_class": GRPOTrainer, "config_class": GRPOConfig, "epsilon_high": 0.28}):
        trainer = make_trainer(**options, per_device_eval_batch_size=8)
        torch.manual_seed(1)
        metrics.append(trainer.evaluate(tiny.dataset()))
    assert metrics[0]["eval_loss"] == metrics[1]["eval_loss"]
    assert metrics[0]["eval_reward"] == metrics[1]["eval_reward"]
    assert metrics[0].keys() == metrics[1].keys()


def test_metrics(make_trainer):
    trainer = make_trainer()
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "credit/seconds" in entry)
    names = {key.removeprefix("credit/") for key in entry if key.startswith("credit/")}
    assert names == {
        *(f"coefficient_{x}" for x in ("min", "mean", "max", "std", "mean_positive", "mean_negative")),
        "between_sides_variance",
        "temperature_positive",
        "temperature_negative",
        "centroid_cosine",
        "centroid_norm_ratio",
        "neutral",
        "seconds",
        "extra_forward_passes",
    }
    assert entry["credit/coefficient_mean"] == pytest.approx(1, abs=1e-5)


# --- errors ---


class Monolith(tiny.model().__class__):
    """A causal model that shows no backbone."""

    base_model_prefix = ""


def test_a_model_without_backbone_is_refused_at_construction(make_trainer):
    model = Monolith(CONFIGS["qwen3"])
    with pytest.raises(ValueError, match=r"Monolith.*base_model_prefix.*token_credit"):
        make_trainer(model)


def test_default_args(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tiny.model()
    model.config._name_or_path = "somebody/tiny"
    monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
    trainer = DeltaGRPOTrainer(model, tiny.reward_letters, None, tiny.dataset(), processing_class=tiny.tokenizer())
    assert isinstance(trainer.args, DeltaGRPOConfig)
    assert trainer.args.output_dir == "tiny-DelTA"


def test_rollouts_may_bring_what_rewards_need(make_trainer):
    def graded(completions, outcome, **kwargs):
        return outcome

    def rollout_func(prompts, trainer):
        return {**rollout_with_environment(prompts, trainer), "outcome": [float(i % 2) for i in range(len(prompts))]}

    trainer = make_trainer(reward_funcs=graded, trainer_options={"rollout_func": rollout_func})
    trainer.train()
    assert logged(trainer, "reward") == [0.5, 0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_credit": "dleta"}, "token_credit='dleta': expected one of 'delta', "),
        (credit(lambda_min=1.5), "lambda_min=1.5, lambda_max=1.2"),
        ({"hidden_state_cache": "gpu"}, "hidden_state_cache='gpu'"),
        ({"log_token_credit": -1}, "log_token_credit=-1"),
        (credit(lamda_min=1), "does not know 'lamda_min' .did you mean 'lambda_min'"),
    ],
)
def test_bad_options_are_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        DeltaGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **options)


def test_defaults_are_the_papers(tmp_path):
    config = DeltaGRPOConfig(str(tmp_path), use_cpu=True, bf16=False)
    rule = config.make_rule()
    assert (rule.refinement_steps, rule.lambda_min, rule.lambda_max) == (1, 0.8, 1.2)
    assert (config.loss_type, config.epsilon, config.epsilon_high, config.beta) == ("dapo", 0.2, 0.28, 0.0)
    assert rule == DelTA()
    assert (rule.token_gradient, rule.normalize_coefficients) == ("output_row", True)
