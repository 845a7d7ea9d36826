"""`coefficient_timing="streaming"` through the trainer. Its formula is tested in `tests/credit/test_streaming.py`."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from trl import GRPOConfig, GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.credit import OutputRowGradients, StreamingCredit, token_coefficients

from . import tiny
from .test_trainer import LORA, logged, plain_forward, rollout_with_environment


STREAMING = {"coefficient_timing": "streaming"}
MODES = {
    "aligned": {},
    "accumulation": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    "misaligned": {"steps_per_generation": 2},
    "iterations": {"num_iterations": 2},
}


@pytest.fixture
def micro_batches(monkeypatch):
    """Every micro-batch of training: what a plain forward says just before, and the coefficients that it got."""
    seen = []
    compute_loss = DeltaGRPOTrainer._compute_loss

    def recording(self, model, inputs):
        with torch.no_grad():
            hidden, log_probs = plain_forward(self.model, inputs)
        new = "token_coefficients" not in inputs
        loss = compute_loss(self, model, inputs)
        valid = inputs["completion_mask"].bool()
        if "tool_mask" in inputs:
            valid = valid & inputs["tool_mask"].bool()
        advantages = inputs["advantages"][:, None].expand_as(valid)[valid]
        seen.append((new, hidden[valid], log_probs[valid], advantages, inputs["token_coefficients"], valid))
        return loss

    monkeypatch.setattr(DeltaGRPOTrainer, "_compute_loss", recording)
    return seen


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("aligned", {}),
        ("accumulation", {"trainer_options": LORA}),
        ("misaligned", {}),
        ("iterations", {"trainer_options": {"rollout_func": rollout_with_environment}}),
    ],
    ids=["aligned", "accumulation, lora", "misaligned", "iterations, tools"],
)
def test_training_streams(make_trainer, micro_batches, mode, options):
    """The first rollout batch is exact, later ones stream from it through every micro-batch's own forward."""
    trainer = make_trainer(**STREAMING, **MODES[mode], **options, max_steps=6)
    trainer.train()
    n = trainer.args.steps_per_generation
    first, rest = micro_batches[: n * trainer.num_iterations], micro_batches[n * trainer.num_iterations :]
    assert not any(new for new, *_ in first)
    expected = StreamingCredit(1, 0.8, 1.2, True, "soft", keep_temperatures=False)
    hidden, log_probs, advantages = (torch.cat([part[i] for part in first[:n]]) for i in (1, 2, 3))
    token_coefficients(OutputRowGradients(hidden, log_probs), advantages, contrast=expected.contrast)
    if mode == "misaligned":  # the policy has moved before the second of its micro-batches
        expected.contrast = None
    streamed = [part for part in rest if part[0]]
    assert len(streamed) >= 2
    for part in rest:
        assert not part[4][~part[5]].any()
    for start in range(0, len(streamed) - n + 1, n) if expected.contrast else ():
        expected.begin(torch.cat([part[3] for part in streamed[start : start + n]]))
        for _, hidden, log_probs, advantages, coefficients, valid in streamed[start : start + n]:
            ours = expected.coefficients(OutputRowGradients(hidden, log_probs), advantages)
            torch.testing.assert_close(coefficients[valid], ours, atol=1e-4, rtol=0)
            assert ours.std() > 0
        expected.finish()
    means = logged(trainer, "credit/coefficient_mean")
    assert means[0] == pytest.approx(1, abs=1e-5)
    assert means == pytest.approx([1.0] * len(means), abs=0.1)


def test_iterations_keep_the_coefficients_of_the_first(make_trainer, micro_batches):
    make_trainer(**STREAMING, num_iterations=3, max_steps=6).train()
    assert [new for new, *_ in micro_batches] == [False, False, False, True, False, False]
    for part in micro_batches[4:]:
        assert part[4] is micro_batches[3][4]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_no_pass_after_the_first_rollout_batch(make_trainer, monkeypatch, mode):
    calls = []
    score = GRPOTrainer._get_per_token_logps_and_entropies
    monkeypatch.setattr(
        GRPOTrainer,
        "_get_per_token_logps_and_entropies",
        lambda *a, **k: calls.append(torch.is_grad_enabled()) or score(*a, **k),
    )
    trainer = make_trainer(**STREAMING, **mode, max_steps=6)
    trainer.train()
    passes = logged(trainer, "credit/extra_forward_passes")
    assert passes == [float(mode in (MODES["aligned"], MODES["accumulation"]))] + [0.0] * (len(passes) - 1)
    last = trainer.args.steps_per_generation * trainer.num_iterations
    misaligned = mode in (MODES["misaligned"], MODES["iterations"])
    assert calls[-last:].count(True) == last
    assert calls[-last - 1] is not misaligned  # TRL's own pass, or the loss before


def test_the_loss_is_that_of_the_coefficients(make_trainer, micro_batches, monkeypatch):
    """What `GRPOTrainer` makes of (B, T) advantages that are multiplied by hand."""
    losses = []
    compute_loss = GRPOTrainer._compute_loss
    monkeypatch.setattr(
        GRPOTrainer, "_compute_loss", lambda *a: losses.append((a[1], a[2], compute_loss(*a))) or losses[-1][2]
    )
    trainer = make_trainer(**STREAMING, max_steps=2)
    trainer.train()
    new, _, _, _, coefficients, _ = micro_batches[-1]
    _, inputs, _ = losses[-1]
    assert new
    assert torch.equal(inputs["advantages"] != 0, coefficients * inputs["advantages"] != 0)
    rows = (inputs["advantages"] / coefficients.clamp(min=1e-9)).nan_to_num()
    for row, valid in zip(rows, inputs["completion_mask"].bool(), strict=True):
        assert row[valid].std(correction=0) < 1e-6  # one advantage per response, times its tokens' coefficients


def test_equal_bounds_train_as_grpo(make_trainer):
    ours = make_trainer(**STREAMING, lambda_min=1.0, lambda_max=1.0, max_steps=4)
    ours.train()
    theirs = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, epsilon_high=0.28, max_steps=4)
    theirs.train()
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), abs=1e-7)


def test_a_rollout_batch_without_contrast(make_trainer):
    """Its coefficients are 1, and the contrast before it is gone on from."""
    calls = []

    def reward(completions, **kwargs):
        calls.append(1)
        return [1.0] * len(completions) if len(calls) in (1, 3) else tiny.reward_letters(completions)

    trainer = make_trainer(**STREAMING, reward_funcs=reward, max_steps=5)
    trainer.train()
    assert logged(trainer, "credit/neutral") == [1, 0, 1, 0, 0]
    # exact until there was a contrast
    assert [x > 0 for x in logged(trainer, "credit/extra_forward_passes")][2:] == [False] * 3
    assert logged(trainer, "credit/coefficient_std")[2] == 0
    assert logged(trainer, "credit/coefficient_std")[3] > 0


@pytest.mark.parametrize(
    ("mode", "temperature_mode"), [({}, "adaptive"), ({"steps_per_generation": 2}, "initial")], ids=str
)
def test_resumed_run_continues_bit_for_bit(make_trainer, tmp_path, mode, temperature_mode):
    options = {
        **STREAMING,
        **mode,
        "temperature_mode": temperature_mode,
        "max_steps": 6,
        "save_strategy": "steps",
        "save_steps": 4,
    }
    whole = make_trainer(**options)
    whole.train()
    checkpoint = tmp_path / "run" / "checkpoint-4"
    saved = load_file(checkpoint / "credit_contrast.safetensors")
    assert saved["direction"].shape == (32,)
    resumed = make_trainer(**options)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert logged(resumed, "loss") == logged(whole, "loss")
    assert logged(resumed, "credit/coefficient_std") == logged(whole, "credit/coefficient_std")
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
    gammas = logged(whole, "credit/temperature_positive")
    assert (len(set(gammas)) == 1) == (temperature_mode == "initial")


def test_evaluation_in_between(make_trainer):
    trainer = make_trainer(
        **STREAMING,
        steps_per_generation=2,
        max_steps=6,
        eval_strategy="steps",
        eval_steps=1,
        trainer_options={"eval_dataset": tiny.dataset(4)},
    )
    trainer.train()
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))
    assert len(logged(trainer, "credit/neutral")) == 3


def test_gradient_checkpointing_and_autocast(make_trainer):
    trainer = make_trainer(**STREAMING, gradient_checkpointing=True, bf16=True, max_steps=3)
    trainer.train()
    assert np.isfinite(logged(trainer, "loss")).all()
    assert all(x > 0 for x in logged(trainer, "credit/coefficient_std"))


@pytest.mark.parametrize(
    "options",
    [
        {"token_credit": "within_side"},
        {"token_credit": "side_mean"},
        {"token_gradient": "full"},
        {"token_gradient": "lm_head"},
        {"token_gradient": "topk_hidden"},
        {"centroid_scope": "group"},
        {"token_selection": "top"},
        {"balance_sides": True},
        {"refinement_steps": 2},
    ],
    ids=str,
)
def test_what_cannot_stream(tmp_path, options):
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=f"coefficient_timing='streaming'.*cannot do {name}={value!r}"):
        DeltaGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **STREAMING, **options)


@pytest.mark.parametrize("credit", ["none", "random", "fipo"])
def test_streaming_without_contrast_is_idle(tmp_path, credit):
    with pytest.raises(ValueError, match="coefficient_timing='streaming': without effect"):
        DeltaGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **STREAMING, token_credit=credit)
