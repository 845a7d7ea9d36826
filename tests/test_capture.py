"""Hidden states caught while transformers generates: those of a scoring pass, or else not used."""

import pytest
import torch
from peft import LoraConfig
from transformers import GPT2Config, MixtralConfig

from delta_trl import cache
from delta_trl.capture import relative_difference
from delta_trl.hidden_states import HiddenStateSource

from . import tiny
from .test_trainer import CONFIGS, LORA, expected_coefficients, logged, plain_forward, rollout_with_environment


@pytest.fixture
def captured(monkeypatch):
    """The captured states of each rollout batch, as the trainer gets them."""
    seen = []
    original = HiddenStateSource._captured
    monkeypatch.setattr(
        HiddenStateSource, "_captured", lambda self, *args: seen.append(original(self, *args)) or seen[-1]
    )
    return seen


def rollouts(trainer, n: int) -> list[dict]:
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    loader = iter(trainer.get_train_dataloader())
    return [trainer._generate_and_score_completions(next(loader)) for _ in range(n)]


def passes(trainer) -> list[float]:
    return trainer._metrics["train"]["credit/extra_forward_passes"]


VARIANTS = {
    "plain": {},
    "lora": {"trainer_options": LORA},
    "reference": {"trainer_options": LORA, "beta": 0.1},
    "temperature": {"temperature": 0.6, "top_p": 0.8, "top_k": 10},
    "accumulation": {
        "per_device_train_batch_size": 4,
        "steps_per_generation": 2,
        "gradient_accumulation_steps": 2,
    },
    "long": {"max_completion_length": 40},
    "no cache": {"generation_kwargs": {"use_cache": False}},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "lm_head": {"token_gradient": "lm_head"},
    "topk_hidden": {"token_gradient": "topk_hidden"},
}


@pytest.mark.parametrize("architecture", ["qwen3", "gemma2"])
def test_captured_states_are_a_plain_forwards(make_trainer, monkeypatch, captured, architecture):
    monkeypatch.setattr(cache, "BLOCK_BYTES", 7 * 32 * 4)
    trainer = make_trainer(tiny.model(CONFIGS[architecture]), max_completion_length=40)
    for batch, recorder in zip(rollouts(trainer, 2), captured, strict=True):
        with torch.no_grad():
            hidden, log_probs = plain_forward(trainer.model, batch)
        valid = batch["completion_mask"].bool()
        assert not valid.all()  # some rows ended early
        states = torch.empty(int(valid.sum()), 32)
        for tokens, chunk in recorder.states.chunks():
            states[tokens] = chunk
        torch.testing.assert_close(states, hidden[valid], atol=1e-4, rtol=1e-3)
        if architecture != "gemma2":  # whose logits `plain_forward` does not cap
            torch.testing.assert_close(recorder.log_probs[valid], log_probs[valid], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_captured_coefficients_are_those_of_a_pass(make_trainer, monkeypatch, captured, options):
    ours = rollouts(make_trainer(**options), 2)
    assert all(captured)
    monkeypatch.setattr(HiddenStateSource, "may_capture", lambda self: False)
    theirs = rollouts(make_trainer(**options), 2)
    for batch, scored in zip(ours, theirs, strict=True):
        assert torch.equal(batch["completion_ids"], scored["completion_ids"])
        torch.testing.assert_close(batch["token_coefficients"], scored["token_coefficients"], atol=2e-5, rtol=0)


def test_a_pass_only_for_batches_longer_or_more_padded_than_before(make_trainer, monkeypatch):
    extents = iter([(10, 2), (10, 2), (9, 1), (11, 1), (11, 2), (11, 3), (10, 3), (12, 4)])
    monkeypatch.setattr("delta_trl.capture._extent", lambda batch: current)
    trainer = make_trainer(max_completion_length=4)
    loader = iter(trainer.get_train_dataloader())
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    for extent in extents:
        current = extent
        trainer._generate_and_score_completions(next(loader))
    assert passes(trainer) == [1, 0, 0, 1, 0, 1, 0, 1]


def test_the_extent_of_a_batch(make_trainer):
    trainer = make_trainer()
    (batch,) = rollouts(trainer, 1)
    lengths = batch["prompt_mask"].sum(dim=1)
    assert lengths.max() > lengths.min()
    assert trainer._hidden_states._trust.length == batch["prompt_ids"].size(1) + batch["completion_ids"].size(1)
    assert trainer._hidden_states._trust.padding == lengths.max() - lengths.min()


def test_states_that_differ_are_not_used(make_trainer, caplog):
    """GPT-2's positions under left padding are others in TRL's scoring pass than in generation."""
    config = GPT2Config(**{**CONFIGS["gpt2"].to_dict(), "summary_first_dropout": 0.0})
    trainer = make_trainer(tiny.model(config))
    for batch in rollouts(trainer, 3):
        expected = expected_coefficients(trainer.model, batch)
        torch.testing.assert_close(batch["token_coefficients"], expected, atol=1e-4, rtol=0)
    assert passes(trainer) == [2, 1, 1]
    assert caplog.text.count("Hidden states of generation differ from those of a scoring pass") == 1


def test_probabilities_that_differ_are_not_used(make_trainer, caplog):
    """States alone do not show a transformation of the logits that `LMHead` does not know."""
    trainer = make_trainer()
    trainer.model.config.logit_scale = 5.0  # says what the model does not do
    for batch in rollouts(trainer, 2):
        expected = expected_coefficients(trainer.model, batch)
        torch.testing.assert_close(batch["token_coefficients"], expected, atol=1e-4, rtol=0)
    assert passes(trainer) == [2, 1]


NOT_CAPTURED = {
    "dropout": {"model": {"attention_dropout": 0.1}},
    "lora dropout": {"trainer_options": {"peft_config": LoraConfig(r=2, target_modules=["q_proj"], lora_dropout=0.1)}},
    "rollout_func": {"trainer_options": {"rollout_func": rollout_with_environment}},
    "truncated masked": {"mask_truncated_completions": True},
    "beams": {"generation_kwargs": {"num_beams": 2}},
    "recompute": {"hidden_state_cache": "recompute"},
    "scored by TRL": {"num_iterations": 2},
}


@pytest.mark.parametrize("options", NOT_CAPTURED.values(), ids=NOT_CAPTURED)
def test_where_nothing_is_captured(make_trainer, options):
    options = dict(options)
    trainer = make_trainer(tiny.model(**options.pop("model", {})), **options)
    assert not trainer._hidden_states.may_capture()
    rollouts(trainer, 1)


def test_experts_are_not_captured(make_trainer):
    sizes = {**tiny.SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}
    assert not make_trainer(tiny.model(MixtralConfig(**sizes)))._hidden_states.may_capture()


def test_out_of_room_while_generating(make_trainer, monkeypatch, captured):
    monkeypatch.setattr(cache, "BLOCK_BYTES", 5 * 32 * 4)
    (expected,) = rollouts(make_trainer(), 1)
    assert captured.pop()
    queries = []

    def free_memory(device):
        queries.append(device)
        return (2**40, 2**40) if len(queries) != 4 else (0, 2**40)

    monkeypatch.setattr(cache, "free_memory", free_memory)
    trainer = make_trainer()
    (batch,) = rollouts(trainer, 1)
    assert captured == [None]
    assert passes(trainer) == [1]
    torch.testing.assert_close(batch["token_coefficients"], expected["token_coefficients"], atol=2e-5, rtol=0)


def test_float32_weights_under_autocast(make_trainer, captured):
    """Generation runs in float32, the scoring pass in bfloat16: the same within bfloat16's rounding, kept in it."""
    trainer = make_trainer(bf16=True)
    ours = rollouts(trainer, 2)
    assert [recorder.states.dtype for recorder in captured] == [torch.bfloat16] * 2
    for batch in ours:
        expected = expected_coefficients(trainer.model, batch)
        assert (batch["token_coefficients"] - expected).abs().max() < 0.05


def test_training_needs_a_pass_or_two(make_trainer):
    trainer = make_trainer(max_steps=10, max_completion_length=12)
    trainer.train()
    counts = logged(trainer, "credit/extra_forward_passes")
    assert counts[0] == 1
    assert sum(counts) < 5


def test_relative_difference():
    a, b = torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    assert relative_difference(a, b) == pytest.approx(0.5)
    assert relative_difference(a[:0], b[:0]) == 0
