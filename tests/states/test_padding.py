"""Trimmed micro-batches: the same losses, gradients and coefficients as without, in fewer columns."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, LlamaConfig, Qwen3Config
from trl import GRPOConfig, GRPOTrainer

from delta_trl.compatibility import is_shift_invariant
from delta_trl.states.padding import Trim, pieces, regrouped

from .. import tiny
from ..trainers import LORA, credit, logged, rollout_with_environment


LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo")


def ragged(prompts, trainer) -> dict:
    """Completions of 1 to 20 tokens; every fifth is cut off."""
    ids = [[2 + (7 * i + t) % 30 for t in range(1 + 3 * (i % 7))] for i in range(len(prompts))]
    ids = [row if i % 5 == 4 else [*row, 1] for i, row in enumerate(ids)]
    return {"prompt_ids": trainer.processing_class(prompts)["input_ids"], "completion_ids": ids, "logprobs": None}


def run(make_trainer, **options):
    """Losses and weights after a rollout batch, and the widths of all forwards that trained or scored."""
    torch.manual_seed(3)
    model = tiny.model(**options.pop("model", {}))
    widths = []
    model.base_model.register_forward_hook(
        lambda module, args, kwargs, output: widths.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    defaults = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "steps_per_generation": 8,
        "max_completion_length": 24,
        "max_steps": 2,
        "optim": "sgd",
        "learning_rate": 0.5,
        "logging_steps": 1,
        "trainer_options": {"rollout_func": ragged},
    }
    trainer = make_trainer(model, **{**defaults, **options})
    trainer.train()
    return trainer, torch.cat([p.detach().flatten() for p in trainer.model.parameters()]), widths


def area(widths) -> int:
    return sum(rows * columns for rows, columns in widths)


MODES = {
    **{loss_type: {"loss_type": loss_type} for loss_type in LOSSES},
    "gspo without credit": {"importance_sampling_level": "sequence", "token_credit": "none"},
    "sequence": {"importance_sampling_level": "sequence", "loss_type": "vespo"},
    "truncated masked": {"mask_truncated_completions": True},
    "entropy quantile": {"top_entropy_quantile": 0.5},
    "entropy bonus": {"entropy_coef": 0.1},
    "aligned": {"steps_per_generation": 4},
    "iterations": {"num_iterations": 2, "max_steps": 4},
    "multiples": {"pad_to_multiple_of": 8},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "tools": {"trainer_options": {"rollout_func": rollout_with_environment}},
    "fipo": {"token_credit": "fipo", "num_iterations": 2, "max_steps": 4},
    "across a micro-batch": credit("stare", entropy=9.0),
    "exact": credit(token_gradient="full"),
    "no credit": {"token_credit": "none"},
    "recomputed": {"hidden_state_cache": "recompute"},
    "fused rows": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_generation": 2},
}


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_training_is_the_same_to_rounding(make_trainer, options):
    ours, our_weights, narrow = run(make_trainer, **options)
    theirs, their_weights, wide = run(make_trainer, **options, trim_padding=False)
    tolerance = 2e-3 if options == MODES["exact"] else 2e-5  # a difference quotient divides rounding by a small step
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), abs=tolerance)
    torch.testing.assert_close(our_weights, their_weights, atol=tolerance, rtol=tolerance)
    assert logged(ours, "credit/coefficient_std") == pytest.approx(logged(theirs, "credit/coefficient_std"), abs=1e-5)
    # TRL logs means over micro-batches, whichever tokens these hold
    assert logged(ours, "entropy") == pytest.approx(logged(theirs, "entropy"), rel=0.01)
    assert len(narrow) == len(wide)  # under FSDP and ZeRO-3 ranks differ in width, not in number of forwards
    if options != MODES["tools"]:
        assert area(narrow) < 0.95 * area(wide)


def test_lora_with_a_reference(make_trainer):
    options = {"beta": 0.1, "trainer_options": {**LORA, "rollout_func": ragged}}
    ours, theirs = (run(make_trainer, **options, trim_padding=trim)[0] for trim in (True, False))
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), abs=2e-5)
    assert logged(ours, "kl") == pytest.approx(logged(theirs, "kl"), rel=0.2)


def test_off_it_is_grpo_bit_for_bit(make_trainer):
    ours, our_weights, _ = run(make_trainer, token_credit="none", trim_padding=False)
    theirs, their_weights, _ = run(make_trainer, trainer_class=GRPOTrainer, config_class=GRPOConfig, epsilon_high=0.28)
    assert logged(ours, "loss") == logged(theirs, "loss")
    assert torch.equal(our_weights, their_weights)


def test_rows_of_like_length_come_together(make_trainer):
    """Within an optimiser step, longest first; what an optimiser step holds does not change."""
    steps = {}
    for trim in (True, False):
        batches = []
        trainer = make_trainer(
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            steps_per_generation=8,
            max_completion_length=24,
            trim_padding=trim,
            trainer_options={"rollout_func": ragged},
        )
        compute = trainer._compute_loss
        trainer._compute_loss = lambda model, inputs, b=batches, c=compute: b.append(inputs) or c(model, inputs)
        trainer.train()
        lengths = torch.cat([batch["completion_mask"].sum(dim=1) for batch in batches])
        steps[trim] = lengths.view(-1, 8).tolist()
    assert [sorted(step, reverse=True) for step in steps[False]] == steps[True]


@pytest.mark.parametrize(
    ("config", "invariant"),
    [
        (Qwen3Config(**tiny.SIZES, head_dim=8), True),
        (LlamaConfig(**tiny.SIZES), True),
        (LlamaConfig(**tiny.SIZES, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}), False),
        (GPT2Config(), False),
    ],
)
def test_prompts_are_trimmed_where_positions_are_relative(config, invariant):
    assert is_shift_invariant(config) == invariant


def test_absolute_positions_stay_where_they_are(make_trainer):
    config = GPT2Config(
        vocab_size=tiny.SIZES["vocab_size"], n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    losses = []
    for trim in (True, False):
        torch.manual_seed(3)
        options = {"steps_per_generation": 2, "per_device_train_batch_size": 4, "max_completion_length": 24}
        trainer = make_trainer(
            tiny.model(config), **options, trim_padding=trim, trainer_options={"rollout_func": ragged}
        )
        trainer.train()
        losses.append(logged(trainer, "loss"))
    assert losses[0] == pytest.approx(losses[1], abs=2e-5)


# --- the parts ---

masks = st.integers(1, 9).flatmap(
    lambda T: st.lists(st.integers(0, T), min_size=1, max_size=12).map(
        lambda lengths: (torch.arange(T) < torch.tensor(lengths)[:, None]).long()
    )
)


@given(masks, masks, st.integers(1, 5), st.booleans(), st.integers(1, 4))
@settings(deadline=None)
def test_pieces_hold_every_row_and_every_token(mask, prompts, size, trim_prompts, multiple):
    prompts = prompts[torch.arange(len(mask)) % len(prompts)].flip(1)
    seen = []
    for rows, first, width in pieces(prompts, mask, size, Trim(trim_prompts, multiple)):
        assert len(rows) <= size
        assert mask[rows, :width].sum() == mask[rows].sum()
        assert prompts[rows, first:].sum() == prompts[rows].sum()
        assert width == mask.size(1) or width % multiple == 0
        assert 1 <= width
        assert first < prompts.size(1)
        assert trim_prompts or first == 0
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(mask)))


@given(st.lists(st.integers(0, 9), min_size=12, max_size=12), st.sampled_from([1, 2, 3, 6]))
def test_regrouping_moves_whole_rows_within_a_step(lengths, per_step):
    mask = (torch.arange(10) < torch.tensor(lengths)[:, None]).long()
    rows = {"completion_mask": mask, "number": torch.arange(12), "num_items_in_batch": torch.tensor(5)}
    batches = [{k: v[i : i + 2] if v.ndim else v for k, v in rows.items()} for i in range(0, 12, 2)]
    result = regrouped(batches, per_step)
    assert [len(batch["number"]) for batch in result] == [2] * 6
    for batch in result:
        assert torch.equal(mask[batch["number"]], batch["completion_mask"])
        assert batch["num_items_in_batch"] == 5
    for i in range(0, 6, per_step):
        before, after = (torch.cat([b["number"] for b in x[i : i + per_step]]) for x in (batches, result))
        assert set(before.tolist()) == set(after.tolist())
        with_tokens = [length for length in mask[after].sum(dim=1).tolist() if length]
        assert with_tokens == sorted((x for x in mask[before].sum(dim=1).tolist() if x), reverse=True)
        empty = [int((mask[b["number"]].sum(dim=1) == 0).sum()) for b in result[i : i + per_step]]
        assert max(empty) - min(empty) <= 1
