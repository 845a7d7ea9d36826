"""Numbers of an evaluation against independent calculations."""

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb, sqrt

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_trl.evaluation.arguments import EvalArguments
from delta_trl.evaluation.metrics import (
    avg_at_k,
    bootstrap_interval,
    paired_bootstrap,
    pass_at_k,
    run_means,
    scored_for_both,
)

from ..documented import defaults


NAN = float("nan")
outcomes = st.lists(st.lists(st.sampled_from([0.0, 1.0, NAN]), min_size=4, max_size=4), min_size=1, max_size=6)


def test_defaults_are_those_of_the_docstring():
    said, real = defaults(EvalArguments)
    assert said == real != {}


def right_and_scored(row):
    scored = [x for x in row if x == x]
    return scored.count(1.0), len(scored)


@given(outcomes)
def test_avg_at_k(rows):
    fractions = [Fraction(c, n) for c, n in map(right_and_scored, rows) if n]
    expected = float(sum(fractions) / len(fractions)) if fractions else NAN
    assert avg_at_k(np.array(rows)) == pytest.approx(expected, nan_ok=True)


@given(outcomes, st.integers(1, 4))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(rows, k):
    shares = []
    scored = [[x for x in row if x == x] for row in rows]
    for row in filter(None, scored):
        subsets = list(combinations(row, k))
        shares.append(Fraction(sum(1.0 in subset for subset in subsets), len(subsets)) if subsets else None)
    expected = float(sum(shares) / len(shares)) if shares and None not in shares else NAN
    assert pass_at_k(np.array(rows), k) == pytest.approx(expected, nan_ok=True)


def test_pass_at_k_of_many_samples():
    rows = np.zeros((1, 1000))
    rows[0, :13] = 1
    assert pass_at_k(rows, 100) == pytest.approx(float(1 - Fraction(comb(987, 100), comb(1000, 100))), abs=1e-12)
    assert pass_at_k(rows, 1) == pytest.approx(avg_at_k(rows))
    assert pass_at_k(rows, 988) == 1.0


def test_only_a_full_reward_passes():
    assert pass_at_k(np.array([[0.9, 0.5]]), 2) == 0.0
    assert avg_at_k(np.array([[0.9, 0.5]])) == pytest.approx(0.7)


def random_rewards(problems, k, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    difficulty = np.clip(rng.beta(1, 2, (problems, 1)) + shift, 0, 1)
    return (rng.random((problems, k)) < difficulty).astype(float)


def test_interval_is_scipy_s():
    rewards = random_rewards(60, 8, seed=1)
    expected = scipy.stats.bootstrap(
        (rewards.mean(axis=1),), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(5)
    ).confidence_interval
    # two random resamplings: each end has a standard error of about 0.0006
    assert bootstrap_interval([rewards]) == pytest.approx((expected.low, expected.high), abs=0.003)
    assert bootstrap_interval([rewards]) == bootstrap_interval([rewards])


def test_interval_of_ten_problems_by_enumeration():
    """Resampling five wrong and five right ones gives a binomial distribution."""
    rewards = np.array([[0.0], [1.0]] * 5)
    expected = scipy.stats.binom(10, 0.5).interval(0.95)
    assert bootstrap_interval([rewards]) == pytest.approx(tuple(x / 10 for x in expected))


def test_interval_of_several_benchmarks_resamples_each():
    # a benchmark without variance within adds nothing to the interval, whatever lies between the benchmarks
    easy, hard = np.ones((30, 2)), np.zeros((10, 2))
    assert bootstrap_interval([easy, hard]) == pytest.approx((0.75, 0.75))
    pooled = bootstrap_interval([np.concatenate([easy, hard])])
    assert pooled[1] - pooled[0] > 0.2
    # and the variances add up: Σ n_b² var_b / n_b / N²
    groups = [random_rewards(200, 1, 2), random_rewards(100, 1, 3)]
    variance = sum(len(g) * g.mean(axis=1).var() for g in groups) / 300**2
    low, high = bootstrap_interval(groups)
    assert (high - low) / 2 == pytest.approx(1.96 * sqrt(variance), rel=0.04)


def test_interval_without_a_score():
    assert np.isnan(bootstrap_interval([np.full((2, 2), NAN)])).all()


# --- comparison ---


def test_runs():
    assert run_means(np.array([[1.0, 0.0, 1.0, NAN], [NAN, 1.0, NAN, NAN]])).tolist() == [1.0, 0.5, 1.0]


def test_models_are_compared_on_problems_scored_for_both():
    a, b = random_rewards(20, 4, 1), random_rewards(20, 3, 2)
    a[:3], b[3:5], a[7, 0] = NAN, NAN, NAN
    for rewards, kept in zip((a, b), scored_for_both(a, b), strict=True):
        np.testing.assert_array_equal(kept, rewards[5:])


def test_paired_bootstrap():
    a, b = random_rewards(80, 16, 7, shift=0.04), random_rewards(80, 16, 7)
    differences = a.mean(axis=1) - b.mean(axis=1)
    rng = np.random.default_rng(11)
    resampled = np.array([rng.choice(differences, 80).mean() for _ in range(20_000)])
    difference, low, high, p = paired_bootstrap([a], [b])
    assert difference == pytest.approx(differences.mean())
    assert (low, high) == pytest.approx(tuple(np.quantile(resampled, [0.025, 0.975])), abs=0.002)
    assert p == pytest.approx((resampled <= 0).mean(), abs=0.01)
    # pairing is what makes it sharp: apart, the two intervals overlap
    assert bootstrap_interval([a])[0] < bootstrap_interval([b])[1]
    assert paired_bootstrap([a], [a])[::3] == (0.0, 1.0)


def test_few_problems_get_no_interval():
    nine, one, nothing = random_rewards(9, 2, 0), np.array([[0.5, 0.5]]), np.full((12, 2), NAN)
    assert paired_bootstrap([nine], [nine + 1])[0] == -1.0
    assert np.isnan(paired_bootstrap([nine], [nine + 1])[1:]).all()
    assert np.isnan(paired_bootstrap(*zip(scored_for_both(nothing, nothing), strict=True))).all()
    assert np.isnan(bootstrap_interval([nine, nothing])).all()
    assert np.isfinite(bootstrap_interval([nine, one])).all()
    assert np.isfinite(paired_bootstrap([nine, one], [one.repeat(9, axis=0), one])).all()


def test_equal_problems_get_no_interval():
    ones, tenths = np.ones((30, 2)), np.full((30, 2), 0.1)
    assert np.isnan(bootstrap_interval([ones])).all()
    difference, low, high, p = paired_bootstrap([ones], [tenths])
    assert (difference, p) == (pytest.approx(0.9), 1 / 10_001)
    assert np.isnan([low, high]).all()


def test_ties_are_not_ahead():
    """Tenths cancel to ±1e-17."""
    differences = np.array([0.1, 0.2, -0.3, 0.3, -0.1])
    sums = Counter({0: 1})
    for _ in range(10):
        drawn = (Counter({total + tenths: n for total, n in sums.items()}) for tenths in (1, 2, -3, 3, -1))
        sums = sum(drawn, Counter())
    exact = sum(n for total, n in sums.items() if total <= 0) / 5**10
    p = paired_bootstrap([np.tile(differences, 2)[:, None]], [np.zeros((10, 1))])[3]
    assert p == pytest.approx(exact, abs=0.01)


@settings(max_examples=20)
@given(outcomes, outcomes)
def test_paired_bootstrap_of_problems_scored_for_both(first, second):
    size = min(len(first), len(second))
    a, b = np.array(first[:size]), np.array(second[:size])
    pairs = [
        Fraction(*right_and_scored(x)) - Fraction(*right_and_scored(y))
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
        if right_and_scored(x)[1] and right_and_scored(y)[1]
    ]
    if pairs:
        assert paired_bootstrap(*zip(scored_for_both(a, b), strict=True))[0] == pytest.approx(
            float(sum(pairs) / len(pairs))
        )


def test_models_are_compared_on_the_same_benchmarks():
    one = np.zeros((2, 2))
    with pytest.raises(ValueError, match="shorter"):
        paired_bootstrap([one, one], [one])
