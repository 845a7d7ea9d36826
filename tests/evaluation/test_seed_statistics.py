"""Paired differences by seed, against scipy and simulated comparisons, and what is said of them."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from delta_trl.evaluation.seed_statistics import (
    POWER,
    Paired,
    conclusion,
    holm,
    pair,
    seeds_to_see,
    t_test,
    visible_difference,
)


NAN = math.nan


@pytest.mark.parametrize("n", [2, 3, 5, 31, 1001])
def test_intervals_and_p_are_those_of_scipy(n):
    values = np.random.default_rng(n).normal(0.2, 1.0, n)
    expected = stats.ttest_1samp(values, 0)
    interval = expected.confidence_interval(0.95)
    mean, half, p = t_test(values)
    assert mean - half == pytest.approx(interval.low)
    assert mean + half == pytest.approx(interval.high)
    assert p == pytest.approx(expected.pvalue)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1], (0.1, NAN, NAN)),
        ([0.25, 0.25], (0.25, 0.0, NAN)),
        ([0.4 - 0.2, 0.3 - 0.1], (0.2, 0.0, NAN)),  # equal up to rounding
    ],
)
def test_one_seed_or_equal_ones_have_no_p(values, expected):
    assert t_test(values) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        ([0.01, 0.04, 0.03, NAN, 0.005], [0.03, 0.06, 0.06, NAN, 0.02]),
        ([0.6, 0.9], [1, 1]),
        ([NAN], [NAN]),
    ],
)
def test_holm_by_hand(p_values, corrected):
    assert holm(p_values) == pytest.approx(corrected, nan_ok=True)


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (0.0009, "< 0.001"),
        (0.001, "0.001"),
        (0.25, "0.250"),
    ],
)
def test_p_in_words(p, words):
    assert Paired("none", [0.1, 0.2], 0.15, 0.1, p).test == words


@pytest.mark.parametrize("n", [3, 5, 20])
def test_a_visible_difference_is_found_as_often_as_promised(n):
    difference = visible_difference(1.0, n, tests=3)
    shift = difference * math.sqrt(n)
    least = stats.t.isf(0.05 / 6, n - 1)
    found = stats.nct.sf(least, n - 1, shift)
    assert found == pytest.approx(POWER, abs=0.001)


@pytest.mark.parametrize("spread", [0.005, 0.03, 0.1])
def test_seeds_to_see_a_difference(spread):
    n = seeds_to_see(0.01, spread, tests=3)
    assert visible_difference(spread, n, tests=3) == pytest.approx(0.01, rel=0.1)
    assert seeds_to_see(0.01, 1.0, tests=3) > 90_000  # so many have no exact answer


@pytest.mark.parametrize(
    ("spread", "seeds"),
    [
        (1, 10),
        (1.25, 15),
        (2, 34),
        (5, 199),
    ],
)
def test_seeds_to_see_a_difference_of_1_are_those_of_textbooks(spread, seeds):
    assert seeds_to_see(1, spread, tests=1) == seeds


def simulated(rng, seeds: int, effect: float) -> str:
    """What is said of a comparison in which the rule differs from the other arms by `effect` standard deviations."""
    luck = rng.normal(0, 3, seeds)  # of a seed, for all its arms
    arms = ("none", "side_mean", "shuffled", "delta")
    values = {arm: luck + rng.normal(0, 1, seeds) for arm in arms}
    values["delta"] += effect
    return conclusion("delta", pair(values, "delta"), values)


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_without_an_effect_a_difference_is_claimed_in_one_comparison_of_twenty_at_most(seeds):
    rng = np.random.default_rng(seeds)
    said = [simulated(rng, seeds, effect=0) for _ in range(400)]
    claimed = [text for text in said if re.search(" (better|worse) than ", text)]
    deviation = (400 * 0.05 * 0.95) ** 0.5
    assert len(claimed) <= 20 + 2 * deviation
    assert len(claimed) >= 4  # the comparisons share the rule's runs, so the correction is careful


def test_a_visible_effect_is_claimed_with_its_direction():
    rng = np.random.default_rng(0)
    effect = visible_difference(2**0.5, 5, tests=3)
    said = [simulated(rng, 5, effect) for _ in range(200)]
    better = [text for text in said if "better than none (no token credit) by" in text]
    assert len(better) >= 160
    assert "worse" not in "".join(said)


def test_a_conclusion_names_clear_and_unclear_differences_and_what_the_seeds_can_see():
    values = {
        "delta": [0.5, 0.6, 0.7],
        "none": [0.3, 0.41, 0.49],
        "side_mean": [0.5, 0.61, 0.68],
        "given": [0.7, 0.81, 0.89],
        "fipo": [0.51, 0.58, 0.7],
    }
    said = conclusion("delta", pair(values, "delta"), values)
    assert said.startswith("delta is better than none (no token credit) by 0.200, and worse than given by 0.200.")
    assert "No clear difference between delta and side_mean (the same weight per side), or fipo." in said
    differences = [np.subtract(values["delta"], values[arm]) for arm in ("none", "side_mean", "given", "fipo")]
    spread = math.sqrt(np.mean([np.var(one, ddof=1) for one in differences]))
    seen = visible_difference(spread, 3, tests=4)
    assert said.endswith(f"With 3 seeds, a true difference of {seen:.2g} is seen in 8 of 10 comparisons.")


@pytest.mark.parametrize(
    ("scale", "small"),
    [
        (1, "0.01"),
        (100, "7.5"),
        (-1, "0.075"),
        (1 / 0.75, "0.01"),
    ],
)
def test_a_conclusion_tells_the_seeds_for_a_small_difference_in_the_outcomes_unit(scale, small):
    """From five seeds on. A tenth of the range, where values are no shares: here, of 0 to 0.75."""
    rng = np.random.default_rng(0)
    delta = np.array([0.0, 0.3, 0.4, 0.5, 0.75])
    none = rng.uniform(0.3, 0.6, 5)
    values = {"delta": scale * delta, "none": scale * none, "fipo": scale * none[::-1]}
    said = conclusion("delta", pair(values, "delta"), values)
    differences = [np.subtract(values["delta"], values[arm]) for arm in ("none", "fipo")]
    spread = math.sqrt(np.mean([np.var(one, ddof=1) for one in differences]))
    seeds = seeds_to_see(float(small), spread, tests=2)
    assert said.endswith(f"About {seeds} seeds would see one of {small} as often.")


def test_equal_differences_are_not_tested():
    """Also if they are equal up to rounding."""
    values = {"delta": [0.3, 0.4, 0.8], "none": [0.1, 0.2, 0.6]}
    [paired] = pairs = pair(values, "delta")
    assert conclusion("delta", pairs, values) == (
        "delta minus none (no token credit) is +0.200 for every seed, so there is nothing to test by."
    )
    assert paired.test == "the same for every seed: no test"
