"""Coefficients do not depend on where hidden states are read from, and products with them are exact enough."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_trl.credit import (
    HiddenStates,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    TopKHiddenGradients,
    compare_centroids,
    hidden_states,
    token_coefficients,
)

from .batches import random_batch


def split_somehow(hidden, seed) -> HiddenStates:
    """The same states in blocks of random sizes, some empty."""
    generator = torch.Generator().manual_seed(seed)
    cuts = torch.randint(len(hidden) + 1, (4,), generator=generator).sort().values.tolist()
    blocks = [hidden[a:b] for a, b in zip([0, *cuts], [*cuts, len(hidden)], strict=True)]
    return HiddenStates(blocks, hidden.device, staged=bool(seed % 2))


REPRESENTATIONS = {
    "output_row": lambda hidden, log_probs, tokens, head: OutputRowGradients(hidden, log_probs),
    "lm_head": lambda hidden, log_probs, tokens, head: LMHeadGradients(hidden, tokens, head),
    "topk_hidden": lambda hidden, log_probs, tokens, head: TopKHiddenGradients(hidden, tokens, head, 5),
}


@pytest.mark.parametrize("representation", REPRESENTATIONS)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 60))
def test_blocks_give_the_same_coefficients(representation, seed, n):
    hidden, log_probs, advantages = random_batch(seed, n=n, d=8, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(11, (n,), generator=generator)
    head = LMHead(torch.randn(11, 8, generator=generator))
    expected = None
    for states in (hidden, split_somehow(hidden, 2 * seed), split_somehow(hidden, seed * 2 + 1)):
        gradients = REPRESENTATIONS[representation](states, log_probs, tokens, head)
        results = [token_coefficients(gradients, advantages)]
        if representation != "lm_head":  # which combines one row of weights at a time
            cosine, norm_ratio = compare_centroids(gradients, advantages).values()
            # the ratio may be large
            results.append(torch.tensor([cosine, math.log(norm_ratio) if norm_ratio > 0 else math.nan]))
        expected = expected or results
        for ours, theirs in zip(results, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0, equal_nan=True)


def test_readings():
    """Every combine and every score reads the states once."""
    hidden, log_probs, advantages = random_batch(0, n=60, dtype=torch.float32)
    states, readings = split_somehow(hidden, 0), []
    chunks = states.chunks
    states.chunks = lambda: readings.append(1) or chunks()
    token_coefficients(OutputRowGradients(states, log_probs), advantages, refinement_steps=2)
    assert len(readings) == 2 * 3


def test_the_products_of_a_gpu(monkeypatch):
    """With a stand-in for `torch.mm(..., out_dtype=)`, which only a GPU has: same shapes, sums as exact."""

    def mm(a, b, out_dtype, out):
        assert a.dtype == b.dtype == torch.bfloat16
        product = a.to(out_dtype) @ b.to(out_dtype)
        return product if out is None else out.copy_(product)

    hidden, log_probs, advantages = random_batch(3, n=500, d=32, dtype=torch.bfloat16)
    tokens, head = torch.arange(500) % 11, LMHead(torch.randn(11, 32).bfloat16())
    for make in REPRESENTATIONS.values():
        expected = token_coefficients(make(hidden, log_probs, tokens, head), advantages)
        with monkeypatch.context() as patch:
            patch.setattr(hidden_states, "_multiplies_as_it_is", lambda states: states.dtype == torch.bfloat16)
            patch.setattr(torch, "mm", mm)
            ours = token_coefficients(make(hidden, log_probs, tokens, head), advantages)
        torch.testing.assert_close(ours, expected, atol=1e-6, rtol=0)
