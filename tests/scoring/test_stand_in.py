"""Rows without padding: the same log-probabilities and entropies, where TRL expects them."""

import sys
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.trainer.utils import add_fused_lm_head

from delta_trl.scoring import stand_in as module
from delta_trl.scoring.stand_in import LEFT, PACKED, StandIn, kind_of, positions_of, register_attention

from ..trainers import sharp
from .runs import mistral


@cache
def model(window: int | None = None):
    model = sharp(mistral(window))
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    register_attention()
    return model


PROMPT, COMPLETION = 5, 9
row = st.tuples(st.integers(1, PROMPT), st.integers(0, COMPLETION))
rows = st.lists(row, min_size=1, max_size=6)


def inputs(lengths, prompts: int = 36) -> dict[str, torch.Tensor]:
    """
    Rows of a prompt on the right of its columns and a completion on the left of its own, as TRL has them. Prompts of
    the same length are one of so many, and may begin with the token of padding.
    """
    before, after = torch.tensor(lengths).T[:, :, None]
    columns = torch.arange(PROMPT + COMPLETION)
    mask = (columns >= PROMPT - before) & (columns < PROMPT + after)
    first_ids = torch.randint(prompts, (len(mask), 1))
    prompt_ids = first_ids + columns[:PROMPT]
    completion_ids = torch.randint(2, 38, (len(mask), COMPLETION))
    ids = torch.cat([prompt_ids, completion_ids], dim=1)
    is_label = mask & (columns >= PROMPT)
    return {
        "input_ids": ids,
        "attention_mask": mask.long(),
        "labels": ids.masked_fill(~is_label, -100),
        "fused_lm_head": True,
    }


def stand_in(padded, layout: str) -> StandIn:
    return StandIn(padded, layout, layers=2, share_prompts=True)


@pytest.mark.parametrize("layout", [PACKED, LEFT])
@given(rows, st.sampled_from([1, 2, 30]))
@settings(deadline=None, max_examples=30)
def test_outputs_are_those_with_padding(layout, lengths, prompts):
    batch = inputs(lengths, prompts)
    padded = model()
    with torch.no_grad():
        ours = stand_in(padded, layout)(**batch)
        theirs = padded(**batch)
    assert ours.log_probs.shape == theirs.log_probs.shape
    torch.testing.assert_close(ours.log_probs, theirs.log_probs, atol=2e-5, rtol=0)
    torch.testing.assert_close(ours.entropy, theirs.entropy, atol=2e-5, rtol=0)


@pytest.mark.parametrize("block", [1, 4, 5, 14])
def test_rows_longer_than_their_window_attend_within_it(monkeypatch, block):
    """transformers masks a band; ours goes through blocks of queries."""
    monkeypatch.setattr(module, "BLOCK", block)
    batch = inputs([(5, 9), (1, 2), (5, 4), (3, 8)], prompts=1)
    narrow, wide = model(window=4), model(window=30)
    with torch.no_grad():
        ours = stand_in(narrow, PACKED)(**batch)
        theirs = narrow(**batch)
        without_window = wide(**batch)
    torch.testing.assert_close(ours.log_probs, theirs.log_probs, atol=2e-5, rtol=0)
    effect = theirs.log_probs - without_window.log_probs
    assert effect.abs().max() > 0.01


@pytest.mark.parametrize(
    ("layout", "lengths", "shape"),
    [
        (PACKED, [(5, 6), (1, 9), (2, 0)], (1, 23)),
        (LEFT, [(5, 6), (1, 9), (2, 0)], (3, 11)),
        (PACKED, [(5, 6), (5, 9), (2, 0), (2, 1)], (1, 25)),  # each prompt once; its last token twice
    ],
)
def test_runs_no_more_columns_than_it_needs(layout, lengths, shape):
    seen = []

    def note(module, args, inputs):
        seen.append(tuple(inputs["input_ids"].shape))

    hook = model().base_model.register_forward_pre_hook(note, with_kwargs=True)
    stand_in(model(), layout)(**inputs(lengths, prompts=1))
    hook.remove()
    assert seen == [shape]


LONG = {"rope_type": "longrope", "original_max_position_embeddings": 10}


@pytest.mark.parametrize(
    ("declared", "rope", "positions"),
    [
        (None, None, sys.maxsize),
        (20, None, 20),
        (20, {"rope_type": "default"}, 20),
        (20, LONG, 10),
        (None, LONG, 10),
        (5, LONG, 5),
        (20, {"full_attention": LONG, "sliding_attention": {"rope_type": "default"}}, 10),
        (20, {"full_attention": {"rope_type": "default"}, "sliding_attention": LONG}, 10),
    ],
)
def test_positions_that_have_no_effect_on_others(declared, rope, positions):
    config = SimpleNamespace(max_position_embeddings=declared, rope_parameters=rope)
    assert positions_of(config) == positions


HOOKS = ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_model_with_a_hook_is_another_kind(hook):
    """Until it is removed. Gradient checkpointing is none."""
    model = sharp()
    before = kind_of(model)
    model.gradient_checkpointing_enable()
    assert kind_of(model) == before
    handle = getattr(model.model.norm, f"register_{hook}")(lambda *args: None)
    assert kind_of(model) != before
    handle.remove()
    assert kind_of(model) == before
