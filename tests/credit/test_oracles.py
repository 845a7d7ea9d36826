"""
Fast paths against slow ones written out: coefficients against `oracle.py`, gradients of the vocabulary against
autograd, hidden states in blocks against a tensor, FIPO's weights against sums. test_full.py has those over all
parameters.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.functional import jacobian
from trl import GRPOConfig

from delta_trl.credit import (
    FIPO,
    DelTA,
    HiddenStates,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    Tokens,
    TopKHiddenGradients,
    WithinSide,
    token_coefficients,
)
from delta_trl.credit.gradients import vocabulary as module
from delta_trl.credit.rules.fipo import discounted_future_sum

from ..memory import PeakMemory
from . import oracle
from .batches import explicit_vectors, random_batch, tokens_of


# --- coefficients ---


def by_oracle(tokens: Tokens, **options) -> tuple[np.ndarray, tuple[float, float]]:
    [hidden] = tokens.hidden.blocks
    return oracle.coefficients(explicit_vectors(hidden, tokens.log_probs), tokens.advantages, **options)


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (DelTA, {"refinement_steps": 3, "lambda_min": 0.5, "lambda_max": 1.5}),
        (DelTA, {"refinement_steps": 0, "lambda_min": 0.0, "normalize_coefficients": False}),
        (DelTA, {"assignment": "hard"}),
        (WithinSide, {"lambda_max": 1.5}),
    ],
    ids=str,
)
def test_equals_the_oracle(rule, options):
    tokens = tokens_of(random_batch(7))
    credit = rule(**options).of_rollout(tokens)
    expected, temperatures = by_oracle(tokens, margin=rule._margin, **options)
    assert credit.weights.dtype == torch.float32
    np.testing.assert_allclose(credit.weights.numpy(), expected, rtol=1e-6)
    ours = [credit.metrics["temperature_positive"], credit.metrics["temperature_negative"]]
    np.testing.assert_allclose(ours, temperatures, rtol=1e-9)


def test_temperatures_of_the_first_contrast_are_kept():
    first, second = tokens_of(random_batch(7)), tokens_of(random_batch(8))
    kept = DelTA(temperature_mode="initial")
    assert kept.of_rollout(tokens_of(random_batch(7, zero_share=1.0))).neutral
    kept.of_rollout(first)
    _, temperatures = by_oracle(first)
    for options in ({"temperatures": temperatures}, {}):
        expected, _ = by_oracle(second, **options)
        np.testing.assert_allclose(kept.of_rollout(second).weights.numpy(), expected, rtol=1e-6)
        kept.load_state_dict({})


def test_no_tokens_times_dimension_temporary():
    """In a dtype that has to be converted."""
    hidden = torch.randn(30_000, 256, dtype=torch.bfloat16)
    gradients, advantages = OutputRowGradients(hidden, -torch.rand(30_000)), torch.randn(30_000)
    with PeakMemory() as memory:
        token_coefficients(gradients, advantages)
    assert 0 < memory.peak < hidden.numel() * 4 / 3


# --- gradients of the vocabulary ---

N, V, D = 5, 2**15 + 7, 3  # in two ranges of the vocabulary
HEADS = {
    "bias and temperature": {"bias": torch.linspace(-1, 1, V).double(), "temperature": 0.7},
    "softcap, scale and temperature": {"softcap": 2.0, "scale": 0.5, "temperature": 0.7},
}


def vocabulary_batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(N, D, generator=generator, dtype=torch.float64).to(dtype)
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64).to(dtype)
    tokens = torch.randint(0, V, (N,), generator=generator)
    tokens[:2] = torch.tensor([0, 2**15])  # the first of each range
    return hidden, tokens, weight, torch.randn(N, generator=generator, dtype=torch.float64)


def log_probs(hidden, tokens, weight, bias=None, temperature=1.0, scale=1.0, softcap=None):
    """Written out, independently of `LMHead`."""
    logits = torch.nn.functional.linear(hidden, weight, bias) * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return (logits / temperature).log_softmax(dim=1)[torch.arange(len(tokens)), tokens]


def assert_products(gradients, c, v):
    """Σ_k c_k v_k of explicit vectors v (N, …), and its products with each of them."""
    direction = gradients.combine(c)
    v = v.flatten(1)
    torch.testing.assert_close(direction.flatten(), c @ v)
    torch.testing.assert_close(gradients.score(direction), v @ (c @ v))


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
def test_equals_autograd(options, monkeypatch):
    """Of the LM head's weights; of hidden states, which the whole vocabulary's `TopKHiddenGradients` are."""
    monkeypatch.setattr(module, "_TILE", 2**16)  # of two tokens
    hidden, tokens, weight, c = vocabulary_batch()
    head = LMHead(weight, **options)
    of_weight = jacobian(lambda weight: log_probs(hidden, tokens, weight, **options), weight)  # (N, V, D)
    assert_products(LMHeadGradients(hidden, tokens, head), c, of_weight)
    of_hidden = jacobian(lambda hidden: log_probs(hidden, tokens, weight, **options).sum(), hidden)  # (N, D)
    assert_products(TopKHiddenGradients(hidden, tokens, head, k=V), c, of_hidden)


def test_top_k_equals_explicit_vectors():
    hidden, tokens, weight, c = vocabulary_batch()
    values, ids = (hidden @ weight.T).topk(20)
    means = (values.softmax(dim=1)[:, :, None] * weight[ids]).sum(dim=1)
    assert_products(TopKHiddenGradients(hidden, tokens, LMHead(weight), k=20), c, weight[tokens] - means)


def test_output_row_is_a_row_of_the_lm_head_gradient():
    hidden, tokens, weight, c = vocabulary_batch()
    explicit = jacobian(lambda weight: log_probs(hidden, tokens, weight), weight)[torch.arange(N), tokens]
    assert_products(OutputRowGradients(hidden, log_probs(hidden, tokens, weight)), c, explicit)


def top_k(*arguments):
    return TopKHiddenGradients(*arguments, k=5)


def output_row(hidden, tokens, head):
    return OutputRowGradients(hidden, torch.linspace(-3, 0, len(tokens)))


REPRESENTATIONS = pytest.mark.parametrize("make", [LMHeadGradients, top_k, output_row])


@REPRESENTATIONS
def test_low_precision_states(make):
    """bfloat16 states and weights give the coefficients of those very numbers."""
    hidden, tokens, weight, advantages = vocabulary_batch(torch.bfloat16)
    ours = token_coefficients(make(hidden, tokens, LMHead(weight)), advantages)
    exact = token_coefficients(make(hidden.double(), tokens, LMHead(weight.double())), advantages)
    torch.testing.assert_close(ours, exact, atol=1e-4, rtol=0)


@REPRESENTATIONS
def test_never_tokens_times_vocabulary(make, monkeypatch):
    vocabulary, n = 512, 1024
    monkeypatch.setattr(module, "_TILE", 2**16)
    tokens, head = torch.randint(0, vocabulary, (n,)), LMHead(torch.randn(vocabulary, 8))
    with PeakMemory() as memory:
        gradients = make(torch.randn(n, 8), tokens, head)
        gradients.score(gradients.combine(torch.ones(n)))
    assert 0 < memory.peak < n * vocabulary * 4 / 2


def split_somehow(hidden, seed) -> HiddenStates:
    """The same states in blocks of random sizes, some empty."""
    generator = torch.Generator().manual_seed(seed)
    cuts = torch.randint(len(hidden) + 1, (4,), generator=generator).sort().values
    return HiddenStates(list(hidden.tensor_split(cuts)), hidden.device, staged=bool(seed % 2))


@REPRESENTATIONS
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 60))
def test_blocks_of_states_give_the_same_coefficients(make, seed, n):
    hidden, _, advantages = random_batch(seed, n=n, d=8, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(11, (n,), generator=generator)
    head = LMHead(torch.randn(11, 8, generator=generator))
    # LMHeadGradients combine one row of weights at a time
    weights = advantages if make is LMHeadGradients else torch.stack([advantages, advantages.abs()])
    expected = None
    for states in (hidden, split_somehow(hidden, 2 * seed), split_somehow(hidden, seed * 2 + 1)):
        gradients = make(states, tokens, head)
        results = token_coefficients(gradients, advantages), gradients.combine(weights)
        expected = expected or results
        torch.testing.assert_close(results, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({"logit_scale": 0.25}, 0.25),
        ({"lm_head_multiplier": 0.5}, 0.5),
        ({"output_multiplier": 0.2}, 0.2),
        ({"logits_scaling": 8.0}, 0.125),
        ({"logits_scaling": 8.0, "model_type": "hyperclovax"}, 8.0),
    ],
    ids=str,
)
def test_a_model_s_head_scales_its_logits(settings, factor):
    hidden, _, weight, _ = vocabulary_batch()
    config = SimpleNamespace(**{"model_type": "some", **settings})
    model = SimpleNamespace(
        config=SimpleNamespace(get_text_config=lambda: config),
        get_output_embeddings=lambda: SimpleNamespace(weight=weight),
    )
    logits, slope = LMHead.of(model, temperature=2.0).logits(hidden)
    torch.testing.assert_close(logits, hidden @ weight.T * factor / 2)
    assert slope.item() == factor / 2


def test_k_and_shapes_are_checked():
    hidden, tokens, weight, _ = vocabulary_batch()
    for k in (0, V + 1):
        with pytest.raises(ValueError, match=f"k={k}"):
            TopKHiddenGradients(hidden, tokens, LMHead(weight), k=k)
    with pytest.raises(ValueError, match=r"\(N, 3\).*\(5, 2\)"):
        LMHeadGradients(hidden[:, :2], tokens, LMHead(weight))


# --- FIPO ---


@pytest.mark.parametrize("T", [1, 128, 300])
def test_discounted_future_sum(T):
    x, gamma = torch.randn(3, T, dtype=torch.float64), 0.97
    powers = gamma ** torch.arange(T, dtype=torch.float64)
    expected = torch.stack([(powers[: T - t] * x[:, t:]).sum(dim=1) for t in range(T)], dim=1)
    torch.testing.assert_close(discounted_future_sum(x, gamma), expected)


def test_weights_by_hand():
    """
    Decay 1 (γ = 1/2): a future that is being reinforced counts more, up to the clip of 1.2; one that is being
    suppressed does not weaken. A loser's token with a ratio of e^2.5 > 10 is not amplified, and
    weakened to 0.8 at most.
    """
    new = torch.tensor([[0.0, 0.1, 0.1], [0.0, -1.0, 2.5], [2.5, -8.0, 0.0], [-1.0, -1.0, -1.0], [-1.0, -1.0, -1.0]])
    advantages = torch.tensor([1.0, -1.0, -1.0, 1.0, -1.0])
    f = FIPO(decay=1.0).weights(new, torch.zeros(5, 3), advantages, torch.ones(5, 3))
    e = math.e
    moved = [[e**0.075, e**0.15, e**0.1], [e**0.125, 1.2, 1.0], [0.8, 1.0, 1.0]]
    torch.testing.assert_close(f, torch.tensor([*moved, [1] * 3, [1] * 3]))


def test_the_future_leaves_out_a_tool_s_text():
    mask, new, old = torch.tensor([[1, 0, 1]]), torch.tensor([[0.0, 0.0, 0.1]]), torch.zeros(1, 3)
    tokens = Tokens(mask, mask, torch.ones(1), log_probs=new, old_log_probs=old)
    weights = FIPO(decay=1.0).of_micro_batch(tokens).weights
    torch.testing.assert_close(weights.log(), torch.tensor([0.05, 0.1]))  # the second is one token away


def trainer_with(delta: float | None) -> SimpleNamespace:
    """A trainer whose loss bounds ratios, and which makes two optimiser steps for a rollout batch."""
    return SimpleNamespace(args=GRPOConfig("unused", delta=delta, steps_per_generation=2, use_cpu=True))


@pytest.mark.parametrize(("advantage", "weight"), [(1.0, 1.2), (-1.0, 1.0)])
def test_only_losers_are_damped_beyond_the_safety_threshold(advantage, weight):
    """The ratio of the only token is e³, about 20, the threshold 10; below it both are amplified."""
    for new, expected in ((3.0, weight), (2.0, 1.2)):
        weights = FIPO().weights(torch.tensor([[new]]), torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1))
        assert weights.item() == pytest.approx(expected)


def test_padding_and_dual_clipped_tokens_have_no_future():
    new, old = torch.tensor([[0.0, 0.05, 3.0]]), torch.zeros(1, 3)
    rule = FIPO(decay=1.0)
    for dual_clip, mask in ((None, [[1, 1, 0]]), (10.0, [[1, 1, 1]])):
        rule.check(trainer_with(dual_clip))
        weights = rule.weights(new, old, torch.ones(1), torch.tensor(mask))
        assert weights[0, :2].log().tolist() == pytest.approx([0.025, 0.05], abs=1e-6)
