"""Numbers of an evaluation against independent calculations."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from delta_trl.evaluation.metrics import bootstrap_interval, pass_at_k, problem_means
from delta_trl.evaluation.results import numbers


NAN = float("nan")
rewards_of_four = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, NAN]), min_size=4, max_size=4)


@given(st.lists(rewards_of_four, max_size=5), st.integers(1, 4))
def test_avg_at_k_and_pass_at_k(rows, k):
    """avg@k is the mean of problems' means, pass@k that of shares of subsets of k samples with one of 1 or more."""
    rows = [*rows, [0.0, 1.0, 0.0, 0.0]]
    means = []
    passes = []
    for row in rows:
        scored = [reward for reward in row if not np.isnan(reward)]
        if not scored:
            continue
        means.append(np.mean(scored))
        right = [max(subset) >= 1 for subset in combinations(scored, k)]
        passes.append(np.mean(right) if right else NAN)
    rewards = np.array(rows)
    assert problem_means(rewards).mean() == pytest.approx(np.mean(means))
    assert pass_at_k(rewards, k) == pytest.approx(np.mean(passes), nan_ok=True)


def test_problems_without_a_score_are_counted_and_left_out():
    rewards = np.array([[1.0, 0.0], [NAN, NAN], [NAN, 1.0]])
    lengths = np.ones_like(rewards)
    truncated = np.zeros_like(rewards)
    found = numbers(np.stack([rewards, lengths, truncated]), ["a", "b", "c"])
    assert found["problems"] == 3
    assert found["scored_problems"] == 2
    assert found["unscored"] == 3
    assert found["avg_at_k"] == pytest.approx(0.75)
    assert found["no_interval"] == "fewer than 10 prompts"


def test_nothing_is_scored():
    rewards = np.full((3, 4), NAN)
    mean = problem_means(rewards).mean()
    assert np.isnan(mean)
    assert np.isnan(pass_at_k(rewards, 1))


def test_interval_of_16_problems_by_enumeration():
    """
    Resampling eight wrong and eight right ones gives a binomial distribution, whose intervals of 90 % and 99 % are
    others. Missing means are left out.
    """
    right = scipy.stats.binom(16, 0.5)
    low, high = right.interval(0.95)
    means = pd.Series([0.0, 1.0] * 8 + [NAN] * 30)
    assert bootstrap_interval(means) == pytest.approx((low / 16, high / 16))


def test_problems_with_the_same_prompt_are_drawn_together():
    """Copies say nothing new, nor do prompts without a score: the interval is that of one of each."""
    rng = np.random.default_rng(0)
    means = pd.Series(rng.normal(size=20))
    unscored = pd.Series(NAN, range(20, 25))
    copies = pd.concat([*[means] * 3, unscored])
    assert bootstrap_interval(copies) == pytest.approx(bootstrap_interval(means))
    nine_prompts = [*range(9)] + [8] * 11
    interval = bootstrap_interval(pd.Series(range(20), nine_prompts))
    assert np.isnan(interval).all()


def test_a_prompt_weighs_as_much_as_it_has_problems():
    """One of ten has 91 problems: how often it is drawn is a binomial distribution."""
    means = pd.Series([1.0] * 91 + [0.0] * 9, [0] * 91 + [*range(1, 10)])
    often = scipy.stats.binom(10, 0.1).ppf(0.975)
    assert bootstrap_interval(means) == pytest.approx((0, 91 * often / (91 * often + 10 - often)))


@pytest.mark.parametrize(
    "values",
    [
        range(9),  # too few
        [*range(9), NAN, NAN],
        [1.0] * 30,  # all are equal: a width of 0 would promise too much
        [0.1, 0.3 - 0.2] * 5,  # up to rounding
    ],
)
def test_no_interval_where_it_would_be_too_narrow(values):
    interval = bootstrap_interval(pd.Series(values))
    assert np.isnan(interval).all()
