"""Paired differences by seed, against scipy and simulated comparisons, and what is said of them."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from delta_trl.evaluation.seed_statistics import (
    POWER,
    conclusion,
    holm,
    pair,
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


def simulated(rng, seeds: int, effect: float) -> str:
    """What is said of a comparison in which the rule differs from the other arms by `effect` standard deviations."""
    luck = rng.normal(0, 3, seeds)  # of a seed, for all its arms
    values = {arm: (luck + rng.normal(0, 1, seeds)).tolist() for arm in ("none", "side_mean", "shuffled")}
    values["delta"] = (luck + effect + rng.normal(0, 1, seeds)).tolist()
    return conclusion("delta", pair(values, "delta"), values)


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_without_an_effect_a_difference_is_claimed_in_one_comparison_of_twenty_at_most(seeds):
    rng = np.random.default_rng(seeds)
    said = [simulated(rng, seeds, effect=0) for _ in range(400)]
    claimed = sum(" better than " in text or " worse than " in text for text in said)
    assert claimed <= 20 + 2 * (400 * 0.05 * 0.95) ** 0.5
    assert claimed >= 4  # the comparisons share the rule's runs, so the correction is careful


def test_a_visible_effect_is_claimed_with_its_direction():
    rng = np.random.default_rng(0)
    effect = visible_difference(2**0.5, 5, tests=3)
    said = [simulated(rng, 5, effect) for _ in range(200)]
    assert sum("better than none (no token credit) by" in text for text in said) >= 160
    assert not any("worse" in text for text in said)


def test_a_conclusion_names_clear_and_unclear_differences_and_what_the_seeds_can_see():
    values = {"delta": [0.5, 0.6, 0.7], "none": [0.3, 0.41, 0.49], "side_mean": [0.5, 0.61, 0.68]}
    said = conclusion("delta", pair(values, "delta"), values)
    assert said.startswith("delta is better than none (no token credit) by 0.200.")
    assert "No clear difference between delta and side_mean (the same weight per side)." in said
    assert re.search(r"With 3 seeds, a true difference of 0.0\d+ is seen in 8 of 10 comparisons.$", said)


@pytest.mark.parametrize(("scale", "small"), [(1, "0.01"), (100, "5.5")])
def test_a_conclusion_tells_the_seeds_for_a_small_difference_in_the_outcomes_unit(scale, small):
    """From five seeds on. A tenth of the range, where values are no shares: here, of 0.2 to 0.75."""
    rng = np.random.default_rng(0)
    values = {"delta": scale * np.array([0.2, 0.3, 0.4, 0.5, 0.75]), "none": scale * rng.uniform(0.3, 0.6, 5)}
    said = conclusion("delta", pair(values, "delta"), values)
    assert said.endswith(f" seeds would see one of {small} as often.")


def test_equal_differences_are_not_tested():
    """Also if they are equal up to rounding."""
    values = {"delta": [0.3, 0.4, 0.8], "none": [0.1, 0.2, 0.6]}
    [paired] = pairs = pair(values, "delta")
    assert conclusion("delta", pairs, values) == (
        "delta minus none (no token credit) is +0.200 for every seed, so there is nothing to test by."
    )
    assert paired.test == "the same for every seed: no test"
