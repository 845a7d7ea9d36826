"""The audit's numbers against scipy, brute force and cases whose answer is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from delta_trl.audit.statistics import SHIFTS, Marked, identification, marked_of, shifted_aucs


@st.composite
def responses(draw):
    scores = np.array(draw(st.lists(st.integers(-3, 3), min_size=2, max_size=12)), dtype=float)
    m = draw(st.integers(1, len(scores) - 1))
    marks = np.zeros(len(scores), dtype=bool)
    marks[draw(st.permutations(range(len(scores))))[:m]] = True
    return scores, marks


@given(responses())
@settings(deadline=None)
def test_auc_is_that_of_mann_and_whitney(response):
    """With the marks as they are, and shifted; what passes the end comes in again at the beginning."""
    scores, marks = response
    for shift, auc in enumerate(shifted_aucs(scores, marks)):
        shifted = np.roll(marks, shift)
        u = stats.mannwhitneyu(scores[shifted], scores[~shifted]).statistic
        assert auc == pytest.approx(u / (marks.sum() * (~marks).sum()), abs=1e-12)


def simulated(rng, effect: float, prompts: int = 30, siblings: int = 4) -> Marked:
    """Responses of various lengths whose marked units score higher by `effect` standard deviations."""
    scores, marks = [], []
    groups = np.repeat(range(prompts), siblings).tolist()
    for n in rng.integers(5, 30, len(groups)):
        marked = rng.permutation(n) < 2
        marks.append(marked)
        scores.append(rng.normal(size=n) + rng.normal() * 5 + effect * marked)  # a level of its own
    by_rule = {"rule": scores, "reverse": [-s for s in scores], "nothing": [0 * s for s in scores]}
    return Marked(by_rule, marks, groups)


def test_a_known_effect():
    """Normal scores, d standard deviations apart: AUC = Φ(d / √2), whatever the responses' levels."""
    found = identification(simulated(np.random.default_rng(0), 1.0, prompts=200))
    rule, reverse, nothing = found.values()
    assert rule["auc"] == pytest.approx(stats.norm.cdf(1 / 2**0.5), abs=0.02)
    assert rule["interval"][0] < rule["auc"] < rule["interval"][1]
    assert rule["interval"][1] - rule["interval"][0] < 0.06
    assert rule["p"] < 0.002
    assert (rule["chance"], reverse["chance"], nothing["chance"]) == ("above", "below", "")
    assert (rule["responses"], rule["prompts"]) == (800, 200)
    assert (nothing["auc"], nothing["interval"], nothing["p"]) == (0.5, [0.5, 0.5], 1)


def test_p_counts_shifts():
    """Against all of them: two marks in six units, and one in five, of different prompts."""
    scores = [np.array([1.0, 5, 2, 6, 4, 3]), np.array([2.0, 1, 5, 3, 4])]
    marks = [np.array([0, 1, 0, 0, 1, 0], bool), np.array([0, 0, 0, 0, 1], bool)]
    found = identification(Marked({"rule": scores}, marks, [0, 1]))["rule"]
    assert found["auc"] == pytest.approx((6 / 8 + 3 / 4) / 2)
    means = np.add.outer(*map(shifted_aucs, scores, marks)) / 2
    p = np.mean(abs(means - 0.5) >= 0.25 - 1e-9)
    assert found["p"] == pytest.approx(p, abs=0.03)  # three standard errors of 2,000 shifts


@pytest.mark.parametrize("width", [1, 5, 15])
def test_scores_that_change_slowly_are_called_no_more_often_than_chance(width):
    """
    200 rules without information: moving averages of noise, alike for siblings, whose marks stand side by side. With
    permutations of the marks, 55 of them were called above or below chance at a width of 15.
    """
    rng = np.random.default_rng(0)

    def averages(*shape):
        noise = rng.normal(size=(*shape, 80 + width - 1))
        return np.lib.stride_tricks.sliding_window_view(noise, width, axis=-1).mean(axis=-1)

    lengths = rng.integers(30, 81, 40)
    marks = [np.arange(length) // 6 == rng.integers(length // 6) for length in lengths]
    prompts = np.repeat(range(20), 2)
    scores = {}
    for rule in range(200):
        values = averages(20)[prompts] + 0.3 * averages(40)
        scores[rule] = [own[:length] for own, length in zip(values, lengths, strict=True)]
    found = identification(Marked(scores, marks, prompts.tolist())).values()
    assert sum(bool(one["chance"]) for one in found) <= 14
    assert 4 <= sum(one["p"] <= 0.05 for one in found)  # and the test is not merely cautious


def test_p_is_never_0():
    """The marks as they are count as one of the shifts."""
    scores = np.arange(100_000.0)
    marked = Marked({"rule": [scores]}, [scores == scores.max()], [0])
    assert identification(marked)["rule"]["p"] == 1 / (1 + SHIFTS)


def test_few_prompts_have_no_interval():
    few = identification(simulated(np.random.default_rng(0), 1.0, prompts=9))["rule"]
    assert few["p"] < 0.05
    assert (few["interval"], few["chance"]) == (None, "")


def test_intervals_and_p_know_that_siblings_are_alike():
    """Equal siblings say no more than one of them."""
    one = simulated(np.random.default_rng(2), 0.3, prompts=40, siblings=1)
    many = Marked({"rule": one.scores["rule"] * 5}, one.marks * 5, one.prompts * 5)
    alone, together = (identification(marked)["rule"] for marked in (one, many))
    assert np.ptp(together["interval"]) == pytest.approx(np.ptp(alone["interval"]), rel=0.1)
    assert together["p"] == pytest.approx(alone["p"], abs=0.01)


def test_only_completions_of_the_side_with_both_kinds_of_units_count():
    line = {"prompt": "p", "advantage": -1.0, "unit": [0, 1, 1, 4], "marked": [1], "scores": {"rule": [5, 0, 2, 3]}}
    other = line | {"prompt": "q"}
    changes = {"marked": []}, {"marked": [0, 1, 4]}, {"advantage": 0.0}, {"advantage": 1.0, "prompt": "q"}
    lines = [line, *(line | change for change in changes)]
    losers, winners = (marked_of(lines, sign) for sign in (-1, 1))
    assert [marks.tolist() for marks in losers.marks] == [[False, True, False]]
    assert (losers.prompts, len(winners.marks)) == ([0], 1)
    assert marked_of([line, other, line], -1).prompts == [0, 1, 0]
