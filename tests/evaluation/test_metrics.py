"""Numbers of an evaluation against independent calculations."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from delta_trl.evaluation.metrics import bootstrap_interval, pass_at_k, problem_means


NAN = float("nan")
outcomes = st.lists(st.lists(st.sampled_from([0.0, 1.0, NAN]), min_size=4, max_size=4), min_size=1, max_size=6)


@given(outcomes)
def test_avg_at_k(rows):
    scored = [[x for x in row if x == x] for row in rows]
    fractions = [Fraction(row.count(1.0), len(row)) for row in scored if row]
    expected = float(sum(fractions) / len(fractions)) if fractions else NAN
    assert problem_means(np.array(rows)).mean() == pytest.approx(expected, nan_ok=True)


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
    assert pass_at_k(rows, 1) == pytest.approx(problem_means(rows).mean())
    assert pass_at_k(rows, 988) == 1.0


def test_interval_of_ten_problems_by_enumeration():
    """Resampling five wrong and five right ones gives a binomial distribution. A missing mean is left out."""
    expected = scipy.stats.binom(10, 0.5).interval(0.95)
    means = pd.Series([0.0, 1.0] * 5 + [NAN])
    assert bootstrap_interval(means) == pytest.approx(tuple(x / 10 for x in expected))


@pytest.mark.parametrize(
    "values",
    [
        range(9),  # too few
        [NAN] * 12,
        [*range(9), NAN, NAN],
        [1.0] * 30,  # all are equal: a width of 0 would promise too much
        [0.1, 0.3 - 0.2] * 5,  # up to rounding
    ],
)
def test_no_interval_where_it_would_be_too_narrow(values):
    assert np.isnan(bootstrap_interval(pd.Series(values))).all()
