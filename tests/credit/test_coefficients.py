import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import distance

from delta_trl.credit import DelTA, OutputRowGradients, coefficient_statistics, compare_centroids, token_coefficients
from delta_trl.credit.coefficients import contrast_credit

from . import oracle
from .batches import explicit_vectors, random_batch, tokens_of


# --- what a batch can look like ---


@pytest.mark.parametrize(
    "advantages",
    [
        pytest.param([0.0] * 6, id="all zero"),
        pytest.param([1.0, 2, 3, 1, 1, 0], id="no losers"),
        pytest.param([-1.0, -2, -3, -1, -1, 0], id="no winners"),
        pytest.param([math.nan] * 6, id="unscorable"),
        pytest.param([], id="no token"),
    ],
)
def test_without_contrast_every_coefficient_is_exactly_one(advantages):
    n = len(advantages)
    hidden, log_probs, _ = random_batch(0, n=n)
    gradients = OutputRowGradients(hidden, log_probs)
    credit = contrast_credit(gradients, torch.tensor(advantages))
    assert credit.weights.tolist() == [1.0] * n
    assert credit.neutral
    assert math.isnan(credit.metrics["temperature_positive"])


def test_certain_tokens_have_no_gradient():
    """p = 1 exactly, and a log-probability that rounding left above 0."""
    hidden, log_probs, advantages = random_batch(1, n=50)
    log_probs[:25] = 0.0
    log_probs[25:30] = 0.05  # far more than rounding does: the sign of 1 - p must not turn
    ours = token_coefficients(OutputRowGradients(hidden, log_probs), advantages)
    v = explicit_vectors(hidden, log_probs.clamp(max=0))
    expected, _ = oracle.coefficients(v, advantages)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(("assignment", "coefficient"), [("soft", 1.0), ("hard", 0.8)])
def test_where_no_token_has_a_gradient_all_margins_are_0(assignment, coefficient):
    hidden, _, advantages = random_batch(1, n=20)
    gradients = OutputRowGradients(hidden, torch.zeros(20))
    weights = token_coefficients(gradients, advantages, assignment=assignment, normalize=False)
    assert weights.tolist() == pytest.approx([coefficient if A else 0.8 for A in advantages.tolist()])


@pytest.mark.parametrize("assignment", ["soft", "hard"])
@pytest.mark.parametrize("state", [math.inf, math.nan, 1e200])
@pytest.mark.parametrize("temperatures", [None, (1.0, 2.0)])
def test_non_finite_states_give_a_neutral_batch(assignment, state, temperatures):
    """Also those that overflow in a product."""
    hidden, log_probs, advantages = random_batch(2, n=50)
    hidden[3, 2] = state
    gradients = OutputRowGradients(hidden, log_probs)
    options = {"assignment": assignment, "temperatures": temperatures, "normalize": False}
    credit = contrast_credit(gradients, advantages, **options)
    assert credit.weights.tolist() == [1.0] * 50
    assert credit.neutral
    assert np.isnan([*credit.metrics.values()]).all()


# --- properties ---

batches = st.builds(
    random_batch,
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    d=st.integers(1, 12),
    zero_share=st.sampled_from([0.0, 0.3, 0.9]),
)
refinements = st.integers(0, 3)


@given(batches, refinements)
def test_small_and_lopsided_batches_equal_the_oracle(batch, K):
    """Single tokens, sides of one token, tokens that are all alike, and margins below the floor of temperatures."""
    hidden, log_probs, advantages = batch
    all_alike = hidden[:1].expand_as(hidden)
    for states in (hidden, all_alike, 1e-3 * hidden):
        gradients = OutputRowGradients(states, log_probs)
        ours = token_coefficients(gradients, advantages, refinement_steps=K)
        v = explicit_vectors(states, log_probs)
        expected, _ = oracle.coefficients(v, advantages, refinement_steps=K)
        np.testing.assert_allclose(ours.numpy(), expected, atol=1e-5)


@given(batches, refinements, st.sampled_from([1e-30, 1e-3, 1e3, 1e30]), st.randoms(use_true_random=False))
def test_scale_sign_and_order_do_not_matter(batch, K, scale, random):
    """Of advantages and gradients, of advantages (winners and losers swap), of tokens. NaN is no advantage."""
    hidden, log_probs, advantages = batch
    order = list(range(len(advantages)))
    random.shuffle(order)

    def coefficients(hidden, log_probs, advantages, eps=1e-8):
        gradients = OutputRowGradients(hidden, log_probs)
        return token_coefficients(gradients, advantages, refinement_steps=K, eps=eps)

    close = partial(torch.testing.assert_close, atol=1e-5, rtol=0)
    ours = coefficients(hidden, log_probs, advantages)
    reordered = coefficients(hidden[order], log_probs[order], advantages[order])
    close(reordered, ours[order])
    close(coefficients(hidden, log_probs, -advantages), ours)
    unknown = torch.where(advantages == 0, math.nan, advantages)
    close(coefficients(hidden, log_probs, unknown), ours)

    unscaled = coefficients(hidden, log_probs, advantages, eps=0)
    close(coefficients(hidden, log_probs, advantages * scale, eps=0), unscaled)
    close(coefficients(hidden * scale, log_probs, advantages, eps=0), unscaled)


@given(batches, refinements, st.floats(0.01, 10))
def test_equal_bounds_are_exactly_grpo(batch, K, bound):
    hidden, log_probs, advantages = batch
    options = {
        "refinement_steps": K,
        "lambda_min": bound,
        "lambda_max": bound,
    }
    for dtype in (torch.float64, torch.float32):
        gradients = OutputRowGradients(hidden.to(dtype), log_probs)
        weights = token_coefficients(gradients, advantages.to(dtype), **options)
        assert (weights == 1).all()


def test_advantages_in_16_bit_are_those_very_numbers():
    hidden, log_probs, advantages = random_batch(1)
    gradients = OutputRowGradients(hidden, log_probs)
    in_16_bit = advantages.bfloat16()
    exact = token_coefficients(gradients, in_16_bit.double())
    torch.testing.assert_close(token_coefficients(gradients, in_16_bit), exact, atol=1e-5, rtol=0)


# --- statistics ---


def test_statistics_equal_those_by_hand():
    """By hand: winners' coefficients are 1, 2 and 6, losers' 7 and 9. A token without advantage counts nowhere."""
    coefficients = torch.tensor([1.0, 7, 2, 10, 6, 9])
    advantages = torch.tensor([1.0, -2, 0.5, 0, 1, -1])
    expected = {
        "coefficient_min": 1,
        "coefficient_mean": 5,
        "coefficient_max": 9,
        "coefficient_std": 9.2**0.5,  # (16 + 9 + 1 + 4 + 16) / 5
        "coefficient_mean_positive": 3,
        "coefficient_mean_negative": 8,
        "between_sides_variance": 6 / 9.2,  # (3 * 4 + 2 * 9) / 5
    }
    assert coefficient_statistics(coefficients, advantages) == pytest.approx(expected)


def test_statistics_where_undefined():
    one_winner = coefficient_statistics(torch.tensor([1.0, 2, 0]), torch.tensor([1.0, 0, 0]))
    assert one_winner["coefficient_mean"] == 1
    assert one_winner["coefficient_mean_positive"] == 1
    assert math.isnan(one_winner["coefficient_mean_negative"])
    assert math.isnan(one_winner["between_sides_variance"])

    no_token = coefficient_statistics(torch.ones(0), torch.ones(0))
    for value in no_token.values():
        assert math.isnan(value)


def test_centroids_against_explicit_ones():
    hidden, log_probs, advantages = random_batch(9)
    advantages[0] = math.nan  # unscorable
    gradients = OutputRowGradients(hidden, log_probs)
    v = explicit_vectors(hidden, log_probs)
    won = advantages.numpy() > 0
    lost = advantages.numpy() < 0
    plus = np.average(v[won], axis=0, weights=advantages[won])
    minus = np.average(v[lost], axis=0, weights=advantages[lost])
    expected = {
        "centroid_cosine": 1 - distance.cosine(plus, minus),
        "centroid_norm_ratio": np.linalg.norm(plus) / np.linalg.norm(minus),
    }
    assert compare_centroids(gradients, advantages) == pytest.approx(expected)

    for one_side in (advantages.abs(), -advantages.abs()):
        undefined = compare_centroids(gradients, one_side)
        assert undefined == pytest.approx(dict.fromkeys(expected, math.nan), nan_ok=True)


def test_top_k_states_report_their_centroids():
    rule = DelTA(token_gradient="topk_hidden", token_gradient_top_k=5)
    credit = rule.of_rollout(tokens_of(random_batch(9)))
    assert "centroid_cosine" in credit.metrics


@pytest.mark.parametrize("option", ["assignment", "margin"])
def test_unknown_options_are_named(option):
    with pytest.raises(ValueError, match=f"{option}='half': expected one of '"):
        token_coefficients(OutputRowGradients(torch.ones(1, 1), -torch.ones(1)), torch.ones(1), **{option: "half"})


def test_bad_shapes_are_named():
    v = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"\(2, 3, 4\).*\(2, 3\)"):
        OutputRowGradients(torch.ones(2, 3, 4), v)
    gradients = OutputRowGradients(v, -torch.ones(2))
    with pytest.raises(ValueError, match=r"got \(2, 1\)"):
        token_coefficients(gradients, torch.ones(2, 1))
