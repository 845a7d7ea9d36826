"""The audit's numbers against scipy, brute force and cases whose answer is known."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from delta_trl.audit.statistics import Marked, auc, identification, marked_of, ranks


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
    scores, marks = response
    u = stats.mannwhitneyu(scores[marks], scores[~marks]).statistic
    assert ranks(scores).tolist() == stats.rankdata(scores).tolist()
    assert auc(ranks(scores), marks) == pytest.approx(u / (marks.sum() * (~marks).sum()))


def simulated(rng, effect: float, prompts: int = 30, siblings: int = 4) -> Marked:
    """Responses of various lengths whose marked units score higher by `effect` standard deviations."""
    scores, marks, groups = [], [], []
    for group in range(prompts):
        for _ in range(siblings):
            n = int(rng.integers(5, 30))
            marked = np.zeros(n, dtype=bool)
            marked[rng.choice(n, size=int(rng.integers(1, 3)), replace=False)] = True
            marks.append(marked)
            scores.append(rng.normal(size=n) + rng.normal() * 5 + effect * marked)  # a level of its own
            groups.append(group)
    return Marked({"rule": scores, "nothing": [np.zeros_like(s) for s in scores]}, marks, groups)


def test_a_known_effect():
    """Normal scores, d standard deviations apart: AUC = Φ(d / √2), whatever the responses' levels."""
    found = identification(simulated(np.random.default_rng(0), 1.0, prompts=200))
    rule, nothing = found["rule"], found["nothing"]
    assert rule["auc"] == pytest.approx(stats.norm.cdf(1 / 2**0.5), abs=0.02)
    assert rule["interval"][0] < rule["auc"] < rule["interval"][1]
    assert rule["interval"][1] - rule["interval"][0] < 0.06
    assert rule["p"] < 0.002
    assert (rule["chance"], nothing["chance"]) == ("above", "")
    assert (rule["responses"], rule["prompts"]) == (800, 200)
    assert nothing["auc"] == 0.5
    assert nothing["interval"] == [0.5, 0.5]
    assert nothing["p"] == 1


def test_p_counts_permutations():
    """Against all of them: two marks in six units, and one in five, of different prompts."""
    scores = [np.array([1.0, 5, 2, 6, 4, 3]), np.array([2.0, 1, 5, 3, 4])]
    marks = [np.array([0, 1, 0, 0, 1, 0], bool), np.array([0, 0, 0, 0, 1], bool)]

    def aucs(values, m):
        """Share of pairs in which the marked one is higher, for all ways to mark m."""
        for chosen in itertools.combinations(values, m):
            yield np.mean([one > other for one in chosen for other in set(values) - set(chosen)])

    expected = [(a + b) / 2 for a in aucs(scores[0], 2) for b in aucs(scores[1], 1)]
    found = identification(Marked({"rule": scores}, marks, [0, 1]))["rule"]
    assert found["auc"] == pytest.approx((6 / 8 + 3 / 4) / 2)
    p = np.mean([abs(one - 0.5) >= found["auc"] - 0.5 - 1e-9 for one in expected])
    assert 0.1 < p < 0.4
    assert found["p"] == pytest.approx(p, abs=0.03)  # three standard errors of 2,000 permutations


def alike(rng, prompts: int = 24, siblings: int = 4) -> Marked:
    """Siblings that score alike at the same positions, and winners' marks: none of it about the other."""
    scores, marks, groups = [], [], []
    for group in range(prompts):
        n = int(rng.integers(10, 30))
        common, marked = rng.normal(size=n), np.zeros(n, dtype=bool)
        marked[rng.choice(n, size=2, replace=False)] = True
        for _ in range(siblings):
            scores.append(common + 0.3 * rng.normal(size=n))
            marks.append(marked)
            groups.append(group)
    return Marked({"rule": scores}, marks, groups)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [simulated, alike])
def test_without_an_effect_intervals_and_p_are_honest(batch):
    rng = np.random.default_rng(1)
    options = {"effect": 0.0} if batch is simulated else {}
    found = [identification(batch(rng, prompts=24, **options), seed=i)["rule"] for i in range(40)]
    covered = np.mean([low <= 0.5 <= high for low, high in (one["interval"] for one in found)])
    assert covered >= 0.87
    assert np.mean([one["p"] <= 0.05 for one in found]) <= 0.1


def test_few_prompts_have_no_interval():
    few = identification(simulated(np.random.default_rng(0), 1.0, prompts=9))["rule"]
    assert few["interval"] is None
    assert few["p"] < 0.05
    assert few["chance"] == ""
    assert 0.5 < few["auc"] < 1


def test_intervals_know_that_siblings_are_alike():
    """Equal siblings say no more than one of them."""
    rng = np.random.default_rng(2)
    one = simulated(rng, 0.3, prompts=40, siblings=1)
    many = Marked({"rule": one.scores["rule"] * 5}, one.marks * 5, one.prompts * 5)
    alone = Marked({"rule": one.scores["rule"]}, one.marks, one.prompts)
    wide = [np.ptp(identification(marked)["rule"]["interval"]) for marked in (alone, many)]
    assert wide[1] == pytest.approx(wide[0], rel=0.1)


def test_only_completions_of_the_side_with_both_kinds_of_units_count():
    def line(**changes) -> dict:
        one = {"prompt": "p", "advantage": -1.0, "unit": [0, 1, 1, 4], "marked": [1], "scores": {"rule": [5, 0, 2, 3]}}
        return one | changes

    lines = [line(), line(marked=[]), line(marked=[0, 1, 4]), line(advantage=0.0), line(advantage=1.0, prompt="q")]
    losers, winners = (marked_of(lines, ["rule"], sign) for sign in (-1, 1))
    assert [marks.tolist() for marks in losers.marks] == [[False, True, False]]
    assert (losers.prompts, len(winners.marks)) == ([0], 1)
    assert marked_of([line(), line(prompt="q"), line()], ["rule"], -1).prompts == [0, 1, 0]
