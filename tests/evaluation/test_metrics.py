"""Numbers of an evaluation against independent calculations."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from delta_trl.evaluation.metrics import avg_at_k, bootstrap_interval, pass_at_k


NAN = float("nan")
outcomes = st.lists(st.lists(st.sampled_from([0.0, 1.0, NAN]), min_size=4, max_size=4), min_size=1, max_size=6)


@given(outcomes)
def test_avg_at_k(rows):
    scored = [[x for x in row if x == x] for row in rows]
    fractions = [Fraction(row.count(1.0), len(row)) for row in scored if row]
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


def test_interval_of_ten_problems_by_enumeration():
    """Resampling five wrong and five right ones gives a binomial distribution."""
    expected = scipy.stats.binom(10, 0.5).interval(0.95)
    assert bootstrap_interval(np.array([0.0, 1.0] * 5)) == pytest.approx(tuple(x / 10 for x in expected))
    assert bootstrap_interval(np.array([0.0, 1.0] * 5 + [NAN])) == bootstrap_interval(np.array([0.0, 1.0] * 5))


@pytest.mark.parametrize(
    "values",
    [
        np.arange(9.0),  # too few
        np.full(12, NAN),
        np.array([*range(9), NAN, NAN]),
        np.ones(30),  # all are equal: a width of 0 would promise too much
        np.array([0.1, 0.3 - 0.2] * 5),  # up to rounding
    ],
)
def test_no_interval_where_it_would_be_too_narrow(values):
    assert np.isnan(bootstrap_interval(values)).all()
