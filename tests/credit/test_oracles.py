"""
Fast paths against slow ones written out: coefficients against `oracle.py`, gradients of the vocabulary against
autograd, hidden states in blocks against a tensor, FIPO's weights against sums. test_full.py has those over all
parameters.
"""

import math
from contextlib import nullcontext
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
    v = explicit_vectors(hidden, tokens.log_probs)
    return oracle.coefficients(v, tokens.advantages, **options)


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (DelTA, {"refinement_steps": 3, "lambda_min": 0.5, "lambda_max": 1.5}),
        (DelTA, {"refinement_steps": 0, "lambda_min": 0.0, "normalize_coefficients": False}),
        (DelTA, {"assignment": "hard"}),
        (DelTA, {"lambda_min": 1.0, "lambda_max": 1.0}),
        (WithinSide, {"lambda_max": 1.5, "refinement_steps": 2}),
    ],
    ids=str,
)
def test_equals_the_oracle(rule, options):
    tokens = tokens_of(random_batch(7))
    weights, temperatures = by_oracle(tokens, margin=rule._margin, **options)

    credit = rule(**options).of_rollout(tokens)

    assert credit.weights.dtype == torch.float32
    np.testing.assert_allclose(credit.weights.numpy(), weights, rtol=1e-6)
    ours = [credit.metrics["temperature_positive"], credit.metrics["temperature_negative"]]
    np.testing.assert_allclose(ours, temperatures, rtol=1e-9)


def test_temperatures_of_the_first_contrast_are_kept():
    without_contrast = tokens_of(random_batch(7, zero_share=1.0))
    first = tokens_of(random_batch(7))
    second = tokens_of(random_batch(8))
    _, temperatures = by_oracle(first)
    with_those_of_first, _ = by_oracle(second, temperatures=temperatures)
    with_its_own, _ = by_oracle(second)

    rule = DelTA(temperature_mode="initial")
    assert rule.of_rollout(without_contrast).neutral
    rule.of_rollout(first)
    kept = rule.of_rollout(second).weights
    np.testing.assert_allclose(kept.numpy(), with_those_of_first, rtol=1e-6)

    rule.load_state_dict({})
    forgotten = rule.of_rollout(second).weights
    np.testing.assert_allclose(forgotten.numpy(), with_its_own, rtol=1e-6)


def test_no_tokens_times_dimension_temporary():
    """In a dtype that has to be converted, piece by piece."""
    n = 30_000
    hidden = torch.randn(n, 256, dtype=torch.bfloat16)
    log_probs = -torch.rand(n)
    gradients = OutputRowGradients(hidden, log_probs)
    advantages = torch.randn(n)
    with PeakMemory() as memory:
        ours = token_coefficients(gradients, advantages)
    assert 0 < memory.peak < hidden.numel() * 4 / 3
    exact = token_coefficients(OutputRowGradients(hidden.double(), log_probs), advantages)
    torch.testing.assert_close(ours, exact, atol=1e-4, rtol=0)


# --- gradients of the vocabulary ---

N, V, D = 5, 2**15 + 7, 3  # in two ranges of the vocabulary
HEADS = {
    "bias and temperature": {
        "bias": torch.linspace(-1, 1, V).double(),
        "temperature": 0.7,
    },
    "softcap, scale and temperature": {
        "softcap": 2.0,
        "scale": 0.5,
        "temperature": 0.7,
    },
}


def vocabulary_batch(dtype=torch.float64):
    """Hidden states, tokens, the LM head's weights, and weights of tokens."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    hidden = normal(N, D).to(dtype)
    weight = normal(V, D).to(dtype)
    tokens = torch.randint(0, V, (N,), generator=generator)
    tokens[:2] = torch.tensor([0, 2**15])  # the first of each range
    return hidden, tokens, weight, normal(N)


def log_probs(hidden, tokens, weight, bias=None, temperature=1.0, scale=1.0, softcap=None):
    """Written out, independently of `LMHead`."""
    logits = torch.nn.functional.linear(hidden, weight, bias) * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    log_p = (logits / temperature).log_softmax(dim=1)
    return log_p[torch.arange(len(tokens)), tokens]


def assert_products(gradients, c, v):
    """Σ_k c_k v_k of explicit vectors v (N, …), and its products with each of them."""
    v = v.flatten(1)
    expected = c @ v
    direction = gradients.combine(c)
    torch.testing.assert_close(direction.flatten(), expected)
    torch.testing.assert_close(gradients.score(direction), v @ expected)


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
def test_equals_autograd(options, monkeypatch):
    """Of the LM head's weights; of hidden states, which the whole vocabulary's `TopKHiddenGradients` are."""
    monkeypatch.setattr(module, "_TILE", 2**16)  # of two tokens
    hidden, tokens, weight, c = vocabulary_batch()
    head = LMHead(weight, **options)

    def of_weight(weight):
        return log_probs(hidden, tokens, weight, **options)

    def of_hidden(hidden):
        return log_probs(hidden, tokens, weight, **options).sum()

    by_weight = jacobian(of_weight, weight)  # (N, V, D)
    assert_products(LMHeadGradients(hidden, tokens, head), c, by_weight)
    by_hidden = jacobian(of_hidden, hidden)  # (N, D)
    assert_products(TopKHiddenGradients(hidden, tokens, head, k=V), c, by_hidden)


def test_top_k_equals_explicit_vectors():
    hidden, tokens, weight, c = vocabulary_batch()
    gradients = TopKHiddenGradients(hidden, tokens, LMHead(weight), k=20)
    logits = hidden @ weight.T
    values, ids = logits.topk(20)
    probabilities = values.softmax(dim=1)
    mean_rows = torch.einsum("nk,nkd->nd", probabilities, weight[ids])
    v = weight[tokens] - mean_rows
    assert_products(gradients, c, v)
    for rows_of_weights in (c[None], torch.stack([c, c.abs()])):
        torch.testing.assert_close(gradients.combine(rows_of_weights), rows_of_weights @ v)


def test_output_row_is_a_row_of_the_lm_head_gradient():
    hidden, tokens, weight, c = vocabulary_batch()

    def of_weight(weight):
        return log_probs(hidden, tokens, weight)

    whole = jacobian(of_weight, weight)  # (N, V, D)
    rows = whole[torch.arange(N), tokens]
    assert_products(OutputRowGradients(hidden, of_weight(weight)), c, rows)


def top_k(*arguments):
    return TopKHiddenGradients(*arguments, k=5)


def output_row(hidden, tokens, head):
    log_probs = -torch.logspace(-9, 0.5, len(tokens))
    return OutputRowGradients(hidden, log_probs)


REPRESENTATIONS = pytest.mark.parametrize("make", [LMHeadGradients, top_k, output_row])


@REPRESENTATIONS
def test_low_precision_states(make):
    """bfloat16 states and weights give the coefficients of those very numbers, also where a loop autocasts."""
    hidden, tokens, weight, advantages = vocabulary_batch(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        gradients = make(hidden, tokens, LMHead(weight))
        ours = token_coefficients(gradients, advantages)
    same_in_float64 = make(hidden.double(), tokens, LMHead(weight.double()))
    exact = token_coefficients(same_in_float64, advantages)
    torch.testing.assert_close(ours, exact, atol=1e-4, rtol=0)


def test_logits_are_exact_where_a_loop_autocasts():
    hidden, _, weight, _ = vocabulary_batch(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        logits, _ = LMHead(weight).logits(hidden)
    exact = hidden.float() @ weight.float().T
    torch.testing.assert_close(logits, exact, atol=1e-5, rtol=1e-5)


def test_lengths_of_low_precision_states():
    """Also of tokens of which the policy is nearly certain."""
    hidden, tokens, *_ = vocabulary_batch(torch.bfloat16)
    ours = output_row(hidden, tokens, None).squared_norms()
    exact = output_row(hidden.double(), tokens, None).squared_norms()
    torch.testing.assert_close(ours.double(), exact, atol=0, rtol=1e-5)


@REPRESENTATIONS
def test_never_tokens_times_vocabulary(make, monkeypatch):
    monkeypatch.setattr(module, "_TILE", 2**16)
    vocabulary, n, d = 512, 1024, 8
    tokens = torch.randint(0, vocabulary, (n,))
    head = LMHead(torch.randn(vocabulary, d))
    with PeakMemory() as memory:
        gradients = make(torch.randn(n, d), tokens, head)
        direction = gradients.combine(torch.ones(n))
        gradients.score(direction)
    assert 0 < memory.peak < n * vocabulary * 4 / 2


def split_somehow(hidden, seed) -> HiddenStates:
    """The same states in blocks of random sizes, some empty."""
    generator = torch.Generator().manual_seed(seed)
    cuts = torch.randint(len(hidden) + 1, (4,), generator=generator)
    blocks = hidden.tensor_split(cuts.sort().values)
    return HiddenStates(list(blocks), hidden.device, staged=bool(seed % 2))


@REPRESENTATIONS
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 60))
def test_blocks_of_states_give_the_same_coefficients(make, seed, n):
    hidden, _, advantages = random_batch(seed, n=n, d=8, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(11, (n,), generator=generator)
    head = LMHead(torch.randn(11, 8, generator=generator))
    # LMHeadGradients combine one row of weights at a time
    weights = advantages if make is LMHeadGradients else torch.stack([advantages, advantages.abs()])

    def results(states):
        gradients = make(states, tokens, head)
        return token_coefficients(gradients, advantages), gradients.combine(weights)

    whole = results(hidden)
    for own_seed in (2 * seed, 2 * seed + 1):
        in_blocks = results(split_somehow(hidden, own_seed))
        torch.testing.assert_close(in_blocks, whole, atol=1e-4, rtol=1e-4)


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
    text_config = SimpleNamespace(**{"model_type": "some", **settings})
    model = SimpleNamespace(
        config=SimpleNamespace(get_text_config=lambda: text_config),
        get_output_embeddings=lambda: SimpleNamespace(weight=weight),
    )
    logits, slope = LMHead.of(model, temperature=2.0).logits(hidden)
    torch.testing.assert_close(logits, hidden @ weight.T * factor / 2)
    assert slope.item() == factor / 2


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
def test_a_model_s_head_has_its_bias_and_softcap(options):
    """Those of its text, if it reads images, too."""
    hidden, _, weight, _ = vocabulary_batch()
    text_config = SimpleNamespace(
        model_type="some",
        logit_scale=options.get("scale"),
        logits_scaling=None,
        final_logit_softcapping=options.get("softcap"),
    )
    layer = SimpleNamespace(weight=torch.nn.Parameter(weight), bias=options.get("bias"))
    model = SimpleNamespace(
        config=SimpleNamespace(get_text_config=lambda: text_config),
        get_output_embeddings=lambda: layer,
    )
    logits, slope = LMHead.of(model, temperature=0.7).logits(hidden)
    expected, expected_slope = LMHead(weight, **options).logits(hidden)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(slope, expected_slope)
    assert not logits.requires_grad


@pytest.mark.parametrize(
    ("factor", "offset", "is_refused"),
    [
        (1.0, 0.0, False),
        (1.04, 0.0, False),  # rounding grows with the logits
        (1.0, 3.0, True),
        (1.0, math.nan, True),
    ],
)
def test_a_head_that_is_another_for_one_of_the_tokens_is_refused(factor, offset, is_refused):
    hidden, tokens, weight, _ = vocabulary_batch()
    models = factor * log_probs(hidden, tokens, weight)
    models[-1] += offset
    with pytest.raises(ValueError, match="does not reproduce") if is_refused else nullcontext():
        LMHead(weight).check(hidden, tokens, models)


def test_a_head_is_checked_where_the_first_completion_has_no_token():
    hidden, tokens, weight, _ = vocabulary_batch()
    states = HiddenStates([hidden[:0], hidden])
    with pytest.raises(ValueError, match="does not reproduce"):
        LMHeadGradients(states, tokens, LMHead(weight), torch.zeros(N))


def test_k_and_shapes_are_checked():
    hidden, tokens, weight, _ = vocabulary_batch()
    head = LMHead(weight)
    for k in (0, V + 1):
        with pytest.raises(ValueError, match=f"k={k}"):
            TopKHiddenGradients(hidden, tokens, head, k=k)
    with pytest.raises(ValueError, match=r"\(N, 3\).*\(5, 2\)"):
        LMHeadGradients(hidden[:, :2], tokens, head)


# --- FIPO ---


@pytest.mark.parametrize("T", [1, 128, 300])
def test_discounted_future_sum(T):
    x = torch.randn(3, T, dtype=torch.float64)
    gamma = 0.97
    powers = gamma ** torch.arange(T, dtype=torch.float64)
    expected = torch.empty_like(x)
    for t in range(T):
        expected[:, t] = x[:, t:] @ powers[: T - t]
    torch.testing.assert_close(discounted_future_sum(x, gamma), expected)


def fipo_weights(rule: FIPO, new, advantages, mask=None) -> torch.Tensor:
    """Weights after log-probabilities have moved from 0 to these."""
    new = torch.tensor(new)
    mask = torch.ones_like(new) if mask is None else torch.tensor(mask)
    return rule.weights(new, torch.zeros_like(new), torch.tensor(advantages), mask)


def test_weights_by_hand():
    """Decay 1 (γ = 1/2), clip 1/4, with a future that is reinforced, or suppressed, or both."""
    new = [
        [0.0, 0.1, 0.1],
        [0.0, -1.0, 2.5],
        [2.5, -8.0, 0.0],
        [-1.0, -1.0, -1.0],
        [-1.0, -1.0, -1.0],
    ]
    expected = [
        [math.exp(0.075), math.exp(0.15), math.exp(0.1)],  # a future that is being reinforced counts more
        [math.exp(0.125), 1.25, 1.0],  # up to the clip; a loser's token with a ratio of e^2.5 > 10 is not amplified
        [0.8, 1.0, 1.0],  # and weakened to 0.8 at most
        [1.0, 1.0, 1.0],  # a future that is being suppressed does not weaken
        [1.0, 1.0, 1.0],
    ]
    weights = fipo_weights(FIPO(decay=1.0, clip=0.25), new, advantages=[1.0, -1.0, -1.0, 1.0, -1.0])
    torch.testing.assert_close(weights, torch.tensor(expected))


def test_the_future_leaves_out_a_tool_s_text():
    mask = torch.tensor([[1, 0, 1]])
    old = torch.zeros(1, 3)
    new = torch.tensor([[0.0, 0.0, 0.1]])
    tokens = Tokens(mask, mask, torch.ones(1), log_probs=new, old_log_probs=old)
    weights = FIPO(decay=2.0).of_micro_batch(tokens).weights
    expected = torch.tensor([0.1 / 2**0.5, 0.1])  # the second is one token away; two would halve it
    torch.testing.assert_close(weights.log(), expected)


def trainer_with(delta: float | None) -> SimpleNamespace:
    """A trainer whose loss bounds ratios, and which makes two optimiser steps for a rollout batch."""
    return SimpleNamespace(args=GRPOConfig("unused", delta=delta, steps_per_generation=2, use_cpu=True))


@pytest.mark.parametrize(("advantage", "weight"), [(1.0, 1.2), (-1.0, 1.0)])
def test_only_losers_are_damped_beyond_the_safety_threshold(advantage, weight):
    """It is a ratio of 10; below it both are amplified."""
    beyond = fipo_weights(FIPO(), [[math.log(10.1)]], [advantage])
    below = fipo_weights(FIPO(), [[math.log(9.9)]], [advantage])
    assert beyond.item() == pytest.approx(weight)
    assert below.item() == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("dual_clip", "mask"),
    [
        pytest.param(None, [[1, 1, 0]], id="padding"),
        pytest.param(10.0, [[1, 1, 1]], id="dual-clipped"),
    ],
)
def test_padding_and_dual_clipped_tokens_have_no_future(dual_clip, mask):
    rule = FIPO(decay=1.0)
    rule.check(trainer_with(dual_clip))
    weights = fipo_weights(rule, [[0.0, 0.05, 3.0]], [1.0], mask)
    first_two = weights[0, :2].log()
    assert first_two.tolist() == pytest.approx([0.025, 0.05], abs=1e-6)
