"""The audit's numbers against scipy, brute force and cases whose answer is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from delta_trl.audit.statistics import SHIFTS, Marked, identification, marked_of, shifted_aucs


@st.composite
def responses(draw):
    """Scores of one response, and which of them are marked."""
    some_scores = st.lists(st.integers(-3, 3), min_size=2, max_size=12)
    scores = np.array(draw(some_scores), dtype=float)
    n = len(scores)
    n_marked = draw(st.integers(1, n - 1))
    order = draw(st.permutations(range(n)))
    marks = np.zeros(n, dtype=bool)
    marks[order[:n_marked]] = True
    return scores, marks


@given(responses())
@settings(deadline=None)
def test_auc_is_that_of_mann_and_whitney(response):
    """With the marks as they are, and shifted; what passes the end comes in again at the beginning."""
    scores, marks = response
    pairs = marks.sum() * (~marks).sum()
    for shift, auc in enumerate(shifted_aucs(scores, marks)):
        shifted = np.roll(marks, shift)
        u = stats.mannwhitneyu(scores[shifted], scores[~shifted]).statistic
        assert auc == pytest.approx(u / pairs, abs=1e-12)


def simulated(rng, effect: float, prompts: int = 30, siblings: int = 4) -> Marked:
    """Responses of various lengths whose marked units score higher by `effect` standard deviations."""
    scores, marks = [], []
    groups = np.repeat(range(prompts), siblings).tolist()
    for n in rng.integers(5, 30, len(groups)):
        marked = rng.permutation(n) < 2
        noise = rng.normal(size=n)
        level = 5 * rng.normal()  # the response's own
        marks.append(marked)
        scores.append(noise + level + effect * marked)
    by_rule = {
        "rule": scores,
        "reverse": [-s for s in scores],
        "nothing": [0 * s for s in scores],
    }
    return Marked(by_rule, marks, groups)


def test_a_known_effect():
    """Normal scores, d standard deviations apart: AUC = Φ(d / √2), whatever the responses' levels."""
    marked = simulated(np.random.default_rng(0), effect=1.0, prompts=200)

    found = identification(marked)

    rule, reverse, nothing = found.values()
    assert rule["responses"] == 800
    assert rule["prompts"] == 200
    assert rule["auc"] == pytest.approx(stats.norm.cdf(1 / 2**0.5), abs=0.02)
    low, high = rule["interval"]
    assert low < rule["auc"] < high
    assert high - low < 0.06
    assert rule["p"] < 0.002
    assert rule["chance"] == "above"
    assert reverse["chance"] == "below"
    assert nothing["chance"] == ""
    assert nothing["auc"] == 0.5
    assert nothing["interval"] == [0.5, 0.5]
    assert nothing["p"] == 1


def test_p_counts_shifts():
    """Against all of them: two marks in six units, and one in five, of different prompts."""
    six = np.array([1.0, 5, 2, 6, 4, 3])
    five = np.array([2.0, 1, 5, 3, 4])
    marks_of_six = np.isin(six, [5, 4])
    marks_of_five = five == 4
    marked = Marked({"rule": [six, five]}, [marks_of_six, marks_of_five], [0, 1])

    found = identification(marked)["rule"]

    auc = (6 / 8 + 3 / 4) / 2
    assert found["auc"] == pytest.approx(auc)
    aucs_of_six = shifted_aucs(six, marks_of_six)
    aucs_of_five = shifted_aucs(five, marks_of_five)
    means = np.add.outer(aucs_of_six, aucs_of_five) / 2
    distances = abs(means - 0.5)
    p = np.mean(distances >= auc - 0.5 - 1e-9)
    assert found["p"] == pytest.approx(p, abs=0.03)  # three standard errors of 2,000 shifts


def test_what_is_as_far_from_a_half_is_as_extreme():
    """Up to rounding: a shift by one unit of two mirrors every AUC."""
    rising, falling = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    last = np.array([False, True])
    found = identification(Marked({"rule": [rising] * 6 + [falling]}, [last] * 7, [0] * 7))["rule"]
    assert found["auc"] == pytest.approx(6 / 7)
    assert found["p"] == 1


def moving_averages(noise: np.ndarray, width: int) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(noise, width, axis=-1)
    return windows.mean(axis=-1)


@pytest.mark.parametrize("width", [1, 5, 15])
def test_scores_that_change_slowly_are_called_no_more_often_than_chance(width):
    """
    200 rules without information: moving averages of noise, alike for siblings, whose marks stand side by side. With
    permutations of the marks, 55 of them were called above or below chance at a width of 15.
    """
    rng = np.random.default_rng(0)
    n_prompts, n_responses, longest = 20, 40, 80
    prompts = np.repeat(range(n_prompts), 2)
    lengths = rng.integers(30, longest + 1, n_responses)
    marks = []
    for length in lengths:
        place = rng.integers(length // 6)
        marks.append(np.arange(length) // 6 == place)
    scores = {}
    for rule in range(200):
        of_prompts = rng.normal(size=(n_prompts, longest + width - 1))
        of_responses = rng.normal(size=(n_responses, longest + width - 1))
        noise = of_prompts[prompts] + 0.3 * of_responses
        values = moving_averages(noise, width)
        scores[rule] = [own[:length] for own, length in zip(values, lengths, strict=True)]
    marked = Marked(scores, marks, prompts.tolist())

    found = identification(marked).values()

    called = [one for one in found if one["chance"]]
    assert len(called) <= 14
    low = [one for one in found if one["p"] <= 0.05]
    assert len(low) >= 4  # the test is not merely cautious


def test_p_is_never_0():
    """The marks as they are count as one of the shifts."""
    scores = np.arange(100_000.0)
    marks = scores == scores.max()
    marked = Marked({"rule": [scores]}, [marks], [0])
    found = identification(marked)["rule"]
    assert found["p"] == 1 / (1 + SHIFTS)


def test_few_prompts_have_no_interval():
    rng = np.random.default_rng(0)
    marked = simulated(rng, effect=1.0, prompts=9)
    few = identification(marked)["rule"]
    assert few["p"] < 0.05
    assert few["interval"] is None
    assert few["chance"] == ""


def one_marked(auc: float, units: int = 11) -> tuple[np.ndarray, np.ndarray]:
    """Scores of all ranks, and a mark on the unit with this AUC."""
    scores = np.arange(units) / (units - 1)
    return scores, np.isclose(scores, auc)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_small_p_alone_is_not_clear(sign):
    """A prompt with many responses decides the mean, and is not in every sample of prompts."""
    decided, mark = one_marked(1.0, units=101)
    scores = [sign * decided] * 100 + [0 * decided] * 9
    found = identification(Marked({"rule": scores}, [mark] * 109, [0] * 100 + [*range(1, 10)]))["rule"]
    assert sign * (found["auc"] - 0.5) > 0.4
    assert found["p"] < 0.05
    low, high = found["interval"]
    assert 0.5 in (low, high)
    assert low < found["auc"] < high  # which weighs responses, not prompts
    assert found["chance"] == ""


@pytest.mark.parametrize("auc", [0.6, 0.4])
def test_an_interval_alone_is_not_clear(auc):
    """All prompts agree, but shifts are often as far from a half."""
    scores, mark = one_marked(auc)
    found = identification(Marked({"rule": [scores] * 10}, [mark] * 10, [*range(10)]))["rule"]
    assert found["interval"] == pytest.approx([auc, auc])
    assert found["p"] > 0.1
    assert found["chance"] == ""


def test_intervals_and_p_know_that_siblings_are_alike():
    """Equal siblings say no more than one of them."""
    rng = np.random.default_rng(2)
    one = simulated(rng, effect=0.3, prompts=40, siblings=1)
    scores = one.scores["rule"]
    many = Marked({"rule": scores * 5}, one.marks * 5, one.prompts * 5)

    alone = identification(one)["rule"]
    together = identification(many)["rule"]

    width = np.ptp(alone["interval"])
    assert np.ptp(together["interval"]) == pytest.approx(width, rel=0.1)
    assert together["p"] == pytest.approx(alone["p"], abs=0.01)


def test_only_completions_of_the_side_with_both_kinds_of_units_count():
    line = {
        "prompt": "p",
        "advantage": -1.0,
        "unit": [0, 1, 1, 4],
        "marked": [1],
        "scores": {"rule": [5, 0, 2, 3]},
    }
    none_marked = line | {"marked": []}
    all_marked = line | {"marked": [0, 1, 4]}
    at_the_mean = line | {"advantage": 0.0}
    won = line | {"advantage": 1.0, "prompt": "q"}
    lines = [line, none_marked, all_marked, at_the_mean, won]

    losers = marked_of(lines, -1)
    [marks] = losers.marks
    assert marks.tolist() == [False, True, False]
    assert [scores.tolist() for scores in losers.scores["rule"]] == [[5, 1, 3]]
    assert losers.prompts == [0]

    winners = marked_of(lines, 1)
    assert len(winners.marks) == 1

    other = line | {"prompt": "q"}
    assert marked_of([line, other, line], -1).prompts == [0, 1, 0]
