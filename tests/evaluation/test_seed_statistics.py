"""Paired differences by seed, against scipy and simulated comparisons."""

import math

import numpy as np
import pytest
from scipy import stats

from delta_trl.evaluation.seed_statistics import (
    POWER,
    holm,
    seeds_to_see,
    t_test,
    visible_difference,
)


@pytest.mark.parametrize("n", [2, 3, 5, 31, 1001])
def test_intervals_and_p_are_those_of_scipy(n):
    values = np.random.default_rng(n).normal(0.2, 1.0, n)
    expected = stats.ttest_1samp(values, 0)
    low, high = expected.confidence_interval(0.95)
    mean, half, p = t_test(values)
    assert (mean - half, mean + half, p) == pytest.approx((low, high, expected.pvalue))


def test_one_seed_or_equal_ones_have_no_p():
    assert t_test([0.1]) == pytest.approx((0.1, math.nan, math.nan), nan_ok=True)
    assert t_test([0.25, 0.25]) == pytest.approx((0.25, 0.0, math.nan), nan_ok=True)
    assert math.isnan(t_test([0.4 - 0.2, 0.3 - 0.1])[2])  # equal up to rounding


def test_holm_by_hand():
    corrected = holm([0.01, 0.04, 0.03, math.nan, 0.005])
    assert corrected == pytest.approx([0.03, 0.06, 0.06, math.nan, 0.02], nan_ok=True)


@pytest.mark.parametrize("n", [3, 5, 20])
def test_a_visible_difference_is_found_as_often_as_promised(n):
    shift = visible_difference(1.0, n, tests=3) * math.sqrt(n)
    least = stats.t.isf(0.05 / 6, n - 1)
    assert stats.nct.sf(least, n - 1, shift) == pytest.approx(POWER, abs=0.001)


@pytest.mark.parametrize("spread", [0.005, 0.03, 0.1])
def test_seeds_to_see_a_difference(spread):
    n = seeds_to_see(0.01, spread, tests=3)
    assert visible_difference(spread, n, tests=3) == pytest.approx(0.01, rel=0.1)
    assert seeds_to_see(0.01, 1.0, tests=3) > 90_000  # so many have no exact answer
