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
