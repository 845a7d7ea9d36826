"""The trainer against the paper's objective, against TRL itself, and with every option that it must support."""

import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from PIL import Image
from torch.nn.utils import parameters_to_vector
from transformers import Qwen3Config
from trl import GRPOConfig, GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.credit import Credit, DelTA, TokenCredit

from ..corpus import tiny
from ..trainers import (
    LORA,
    MISALIGNED,
    TRL,
    Compared,
    credit,
    expected_coefficients,
    logged,
    move,
    plain_forward,
    response_advantages,
    rollout_of,
    same_weights,
)


def gives(value) -> dict:
    """Options of a trainer that rewards completions by their number."""
    return {"reward_funcs": lambda completions, **_: [value(i) for i in range(len(completions))]}


# --- the objective ---


def test_loss_gradient_is_the_papers(make_trainer, rollout):
    """The self-normalised DAPO surrogate of the paper, written out and differentiated by autograd."""
    trainer = make_trainer(**MISALIGNED, **credit(lambda_min=0.5, lambda_max=1.5, refinement_steps=2))
    batch = rollout(trainer)
    coefficients = expected_coefficients(trainer.model, batch, refinement_steps=2, lambda_min=0.5, lambda_max=1.5)

    move(trainer.model)  # as a later optimiser step finds it
    trainer._compute_loss(trainer.model, batch).backward()
    ours = [parameter.grad.clone() for parameter in trainer.model.parameters()]
    trainer.model.zero_grad()

    _, log_probs = plain_forward(trainer.model, batch)
    ratio = (log_probs - batch["old_per_token_logps"]).exp()
    clipped = ratio.clamp(1 - 0.2, 1 + 0.28)
    assert ((ratio != clipped) & batch["completion_mask"].bool()).any()
    A = response_advantages(batch)[:, None]
    surrogate = coefficients * torch.min(ratio * A, clipped * A)
    mask = batch["completion_mask"]
    loss = -(surrogate * mask).sum() / mask.sum()
    loss.backward()
    for grad, parameter in zip(ours, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(grad, parameter.grad, rtol=1e-4, atol=1e-7)


def test_no_credit_is_grpo_bit_for_bit(make_trainer):
    options = {"steps_per_generation": 2, "max_steps": 4, "epsilon_high": 0.28}
    ours = make_trainer(token_credit="none", trim_padding=False, **options)
    ours.train()
    theirs = make_trainer(**TRL, **options)
    theirs.train()
    assert logged(ours, "loss") == logged(theirs, "loss")
    assert same_weights(ours, theirs)
    for entry in ours.state.log_history:
        assert not any(name.startswith("credit/") for name in entry)


def test_a_plain_grpo_config_trains_with_delta(make_trainer, caplog):
    """Code written for GRPOTrainer runs with the class swapped, also with a loss that would ignore credit."""
    assert make_trainer(config_class=GRPOConfig).token_credit == DelTA()
    assert not caplog.text
    for rule in (None, "fipo"):
        ours = make_trainer(
            config_class=GRPOConfig, importance_sampling_level="sequence", num_iterations=2, token_credit=rule
        )
        assert type(ours.token_credit) is TokenCredit
        assert "without token credit" in caplog.text
        caplog.clear()


@pytest.mark.parametrize(("aggregation", "scale"), [("sum_then_normalize", "batch"), ("normalize_then_sum", "group")])
def test_advantages_are_trls_but_for_rounding(make_trainer, rollout, aggregation, scale):
    """A reward at its group's mean has one of 1e-8 or so, which would count it as a winner or a loser."""
    first = [0.7, 0.6, 1.0, 0.1, 0.0, 0.7, 0.6, None]
    second = [0.1] * 4 + [0.5] * 3 + [None]
    options = {
        "multi_objective_aggregation": aggregation,
        "scale_rewards": scale,
        "reward_funcs": [lambda **_: list(first), lambda **_: list(second)],
    }
    ours = response_advantages(rollout(make_trainer(**options)))
    theirs = rollout(make_trainer(**options, **TRL))["advantages"]
    assert ours[1] == 0
    assert theirs[1] != 0
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    without_credit = rollout(make_trainer(**options, token_credit="none"))["advantages"]
    assert torch.equal(without_credit, theirs)


# --- where the hidden states come from ---


def test_coefficients_of_answers_about_images(make_trainer):
    """Those of the policy that sees each response's own image, in every rollout batch."""
    names = [[tiny.message("user", f"{number}+{number}=")] for number in range(8)]
    noise = np.random.default_rng(0).integers(256, size=(8, 16, 16, 3), dtype=np.uint8)
    dataset = Dataset.from_dict({"prompt": names, "image": [Image.fromarray(pixels) for pixels in noise]})
    trainer = make_trainer(
        tiny.multimodal(),
        trainer_class=Compared,
        train_dataset=dataset,
        processing_class=tiny.processor(),
        reward_funcs=tiny.reward_every_other,
    )
    trainer.train()
    assert trainer.rollouts == [8, 8]


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2, "num_iterations": 2}, 1),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4}, 0),
        ({"beta": 0.1}, 1),
        ({"beta": 0.1, "num_iterations": 2, **LORA}, 0),
    ],
    ids=["two batches, two steps", "steps in the batch", "reference", "reference by an adapter"],
)
def test_the_policy_is_scored_once(make_trainer, rollout, monkeypatch, tmp_path, options, passes):
    """Counted at the model, not taken from the metric alone: the policy is scored once, by TRL or by us."""
    tiny.model().save_pretrained(tmp_path / "model")  # TRL loads the reference model from the policy's path
    trainer = make_trainer(str(tmp_path / "model"), Compared, **options)
    rollout(trainer)  # asks the model first what may be trimmed
    scored = []
    score = GRPOTrainer._get_per_token_logps_and_entropies

    def scoring(self, model, ids, *args, **kwargs):
        scored.extend(ids)
        return score(self, model, ids, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", scoring)
    batch = rollout(trainer)
    models = 2 if trainer.beta else 1
    assert len(scored) == len(batch["advantages"]) * models
    assert trainer._metrics["train"]["credit/extra_forward_passes"] == [passes] * 2


def test_autocast_keeps_states_as_the_head_sees_them(make_trainer, rollout, monkeypatch):
    """float32 weights under bfloat16 autocast: states are kept in bfloat16, half the memory."""
    seen = []
    of_rollout = DelTA.of_rollout

    def note(self, tokens):
        seen.append(tokens)
        return of_rollout(self, tokens)

    monkeypatch.setattr(DelTA, "of_rollout", note)
    rollout(make_trainer(**MISALIGNED, bf16=True))
    [tokens] = seen
    kept = tokens.hidden
    assert {block.dtype for block in kept.blocks} == {torch.bfloat16}
    assert kept.shape[0] == len(tokens)


# --- options and batches it must live with ---


NOTHING_VALID = {
    "mask_truncated_completions": True,
    "rollout_func": rollout_of(lambda i: [13]),  # all cut off
    **gives(lambda i: i % 2),
}
OPTIONS = {
    "truncated masked": {"mask_truncated_completions": True},
    "LoRA and gradient checkpointing": {"activation_checkpointing": True, **LORA},
    "padding": {"pad_to_multiple_of": 16, **MISALIGNED},
    "some unscorable": gives(lambda i: None if i % 3 else float(i % 2)),
}
WITHOUT_CONTRAST = {
    "unscorable": gives(lambda i: None),
    "no valid token": NOTHING_VALID,
    "no valid token, full gradients": {**NOTHING_VALID, **credit(token_gradient="full")},
}


@pytest.mark.parametrize("name", [*OPTIONS, *WITHOUT_CONTRAST])
def test_every_option_trains_unless_it_leaves_no_contrast(make_trainer, name):
    options = {**OPTIONS, **WITHOUT_CONTRAST}[name]
    trainer = make_trainer(trainer_class=Compared, **options)
    before = parameters_to_vector(trainer.model.parameters())
    trainer.train()
    after = parameters_to_vector(trainer.model.parameters())
    assert torch.equal(before, after) is (name in WITHOUT_CONTRAST)
    assert min(logged(trainer, "credit/neutral")) == float(name in WITHOUT_CONTRAST)
    for entry in trainer.state.log_history:
        for key, value in entry.items():
            if key in ("loss", "entropy") or key.startswith("credit/"):
                assert math.isfinite(value), key


@pytest.mark.parametrize("stops", [{"eos_token_id": 13}, {"eos_token_id": [1, 13]}, {"stop_token_ids": [13]}], ids=str)
def test_a_completion_that_ends_at_a_stop_token_is_not_cut_off(make_trainer, rollout, stops):
    """TRL knows the tokenizer's and the model's, 1."""
    endings = [6, 13, 1, 13]
    trainer = make_trainer(
        generation_kwargs=stops,
        mask_truncated_completions=True,
        rollout_func=rollout_of(lambda i: [5, endings[i % 4]]),
    )
    is_counted = rollout(trainer)["completion_mask"].any(dim=1)
    assert is_counted.tolist() == [False, True, True, True] * 2


# --- evaluation and logs ---


class Doubled(TokenCredit):
    def of_micro_batch(self, tokens):
        return Credit(advantages=2 * tokens.advantages)


@pytest.mark.parametrize("rule", [DelTA(), Doubled()], ids=["of rollouts", "of micro-batches"])
def test_evaluation_is_trls(make_trainer, rule):
    metrics = []
    for options in ({"token_credit": rule}, {**TRL, "epsilon_high": 0.28}):
        trainer = make_trainer(**options)
        torch.manual_seed(1)
        metrics.append(trainer.evaluate(tiny.dataset()))
    ours, theirs = metrics
    assert ours.keys() == theirs.keys()
    for name in ("eval_loss", "eval_reward"):
        assert ours[name] == theirs[name]


# --- construction ---


class Monolith(tiny.model().__class__):
    """A causal model that shows no backbone."""

    base_model_prefix = ""


class Headless(tiny.model().__class__):
    def get_output_embeddings(self):
        return None


@pytest.mark.parametrize("kind", [Monolith, Headless])
def test_a_model_without_backbone_or_head_is_refused_at_construction(make_trainer, kind):
    """But where no hidden states are needed."""
    model = kind(Qwen3Config(**tiny.SIZES, head_dim=8))
    with pytest.raises(ValueError, match=rf"{kind.__name__}.*base_model_prefix"):
        make_trainer(model)
    make_trainer(model, token_credit="side_weights")


def test_args_default_to_a_delta_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
    model = tiny.model()
    trainer = DeltaGRPOTrainer(model, tiny.reward_letters, None, tiny.dataset(), processing_class=tiny.tokenizer())
    assert isinstance(trainer.args, DeltaGRPOConfig)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (credit("tests.corpus.tiny.model"), "TokenCredit"),
        (credit("none", lambda_max=1.5), "'lambda_max'"),
        ({"token_credit_kwargs": "high"}, "token_credit_kwargs='high'"),
        ({"token_credit_kwargs": "0"}, "token_credit_kwargs=0"),
        ({"hidden_state_cache": "recompute"}, "hidden_state_cache='recompute'"),
        ({"loss_type": "grp"}, "loss_type='grp'"),
        ({"log_token_credit": -1}, "log_token_credit=-1"),
        ({"dynamic_sampling_max_rounds": 0}, "dynamic_sampling_max_rounds=0"),
        ({"dynamic_sampling_max_rounds": 1.5}, "dynamic_sampling_max_rounds=1.5"),
    ],
    ids=str,
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        DeltaGRPOConfig("unused", use_cpu=True, bf16=False, **options)


@pytest.mark.parametrize(("given", "steps"), [(True, 1), (False, 0), (0, 0), (3, 3)])
def test_token_credit_is_recorded_every_step_or_every_few(given, steps):
    args = DeltaGRPOConfig("unused", use_cpu=True, bf16=False, log_token_credit=given)
    assert (args.log_token_credit, type(args.log_token_credit)) == (steps, int)
