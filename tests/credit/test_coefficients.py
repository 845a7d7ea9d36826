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
    [[0.0] * 6, [1.0, 2, 3, 1, 1, 0], [-1.0, -2, -3, -1, -1, 0], [math.nan] * 6, []],
    ids=["all zero", "no losers", "no winners", "unscorable", "no token"],
)
def test_without_contrast_every_coefficient_is_exactly_one(advantages):
    hidden, log_probs, _ = random_batch(0, n=len(advantages))
    credit = contrast_credit(OutputRowGradients(hidden, log_probs), torch.tensor(advantages))
    assert credit.weights.tolist() == [1.0] * len(advantages)
    assert credit.neutral
    assert math.isnan(credit.metrics["temperature_positive"])


def test_certain_tokens_have_no_gradient():
    """p = 1 exactly, and a log-probability that rounding left above 0."""
    hidden, log_probs, advantages = random_batch(1, n=50)
    log_probs[:25] = 0.0
    log_probs[25:30] = 0.05  # far more than rounding does: the sign of 1 - p must not turn
    ours = token_coefficients(OutputRowGradients(hidden, log_probs), advantages)
    expected, _ = oracle.coefficients(explicit_vectors(hidden, log_probs.clamp(max=0)), advantages)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-6)


def test_non_finite_states_give_a_neutral_batch():
    hidden, log_probs, advantages = random_batch(2, n=50)
    hidden[3, 2] = math.inf
    credit = contrast_credit(OutputRowGradients(hidden, log_probs), advantages)
    assert credit.weights.tolist() == [1.0] * 50
    assert credit.neutral


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
    """Single tokens, sides of one token, and tokens that are all alike."""
    hidden, log_probs, advantages = batch
    for v in (hidden, hidden[:1].expand_as(hidden)):
        ours = token_coefficients(OutputRowGradients(v, log_probs), advantages, refinement_steps=K)
        expected, _ = oracle.coefficients(explicit_vectors(v, log_probs), advantages, refinement_steps=K)
        np.testing.assert_allclose(ours.numpy(), expected, atol=1e-5)


@given(batches, refinements, st.sampled_from([1e-30, 1e-3, 1e3, 1e30]), st.randoms(use_true_random=False))
def test_scale_sign_and_order_do_not_matter(batch, K, scale, random):
    """Of advantages and gradients, of advantages (winners and losers swap), of tokens. NaN is no advantage."""
    hidden, log_probs, advantages = batch
    order = list(range(len(advantages)))
    random.shuffle(order)

    def coefficients(hidden, log_probs, advantages, eps=1e-8):
        return token_coefficients(OutputRowGradients(hidden, log_probs), advantages, refinement_steps=K, eps=eps)

    close = partial(torch.testing.assert_close, atol=1e-5, rtol=0)
    ours = coefficients(hidden, log_probs, advantages)
    close(coefficients(hidden[order], log_probs[order], advantages[order]), ours[order])
    close(coefficients(hidden, log_probs, -advantages), ours)
    close(coefficients(hidden, log_probs, torch.where(advantages == 0, math.nan, advantages)), ours)
    unscaled = coefficients(hidden, log_probs, advantages, eps=0)
    close(coefficients(hidden, log_probs, advantages * scale, eps=0), unscaled)
    close(coefficients(hidden * scale, log_probs, advantages, eps=0), unscaled)


@given(batches, refinements, st.floats(0.01, 10))
def test_equal_bounds_are_exactly_grpo(batch, K, bound):
    hidden, log_probs, advantages = batch
    options = {"refinement_steps": K, "lambda_min": bound, "lambda_max": bound}
    for dtype in (torch.float64, torch.float32):
        gradients = OutputRowGradients(hidden.to(dtype), log_probs)
        assert (token_coefficients(gradients, advantages.to(dtype), **options) == 1).all()


# --- statistics ---


def test_statistics_equal_those_by_hand():
    """By hand: winners' coefficients are 1, 2 and 6, losers' 7 and 9. A token without advantage counts nowhere."""
    statistics = coefficient_statistics(torch.tensor([1.0, 7, 2, 10, 6, 9]), torch.tensor([1.0, -2, 0.5, 0, 1, -1]))
    expected = {
        "coefficient_min": 1,
        "coefficient_mean": 5,
        "coefficient_max": 9,
        "coefficient_std": 9.2**0.5,  # (16 + 9 + 1 + 4 + 16) / 5
        "coefficient_mean_positive": 3,
        "coefficient_mean_negative": 8,
        "between_sides_variance": 6 / 9.2,  # (3 * 4 + 2 * 9) / 5
    }
    assert statistics == pytest.approx(expected)


def test_statistics_where_undefined():
    statistics = coefficient_statistics(torch.tensor([1.0, 2, 0]), torch.tensor([1.0, 0, 0]))
    assert statistics["coefficient_mean"] == statistics["coefficient_mean_positive"] == 1
    assert math.isnan(statistics["coefficient_mean_negative"])
    assert math.isnan(statistics["between_sides_variance"])
    assert all(math.isnan(value) for value in coefficient_statistics(torch.ones(0), torch.ones(0)).values())


def test_centroids_against_explicit_ones():
    hidden, log_probs, advantages = random_batch(9)
    v = explicit_vectors(hidden, log_probs)
    sides = advantages.numpy() > 0, advantages.numpy() < 0
    plus, minus = (np.average(v[side], axis=0, weights=advantages[side]) for side in sides)
    cosine = 1 - distance.cosine(plus, minus)
    ratio = np.linalg.norm(plus) / np.linalg.norm(minus)
    found = compare_centroids(OutputRowGradients(hidden, log_probs), advantages)
    assert found == pytest.approx({"centroid_cosine": cosine, "centroid_norm_ratio": ratio})
    undefined = compare_centroids(OutputRowGradients(hidden, log_probs), advantages.abs())
    assert all(map(math.isnan, undefined.values()))
    rule = DelTA(token_gradient="topk_hidden", token_gradient_top_k=5)
    assert "centroid_cosine" in rule.of_rollout(tokens_of(random_batch(9))).metrics


def test_bad_shapes_are_named():
    with pytest.raises(ValueError, match=r"\(2, 3, 4\).*\(2, 3\)"):
        OutputRowGradients(torch.ones(2, 3, 4), -torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"got \(2, 1\)"):
        token_coefficients(OutputRowGradients(torch.ones(2, 3), -torch.ones(2)), torch.ones(2, 1))
