"""
How well scores find the marked units of a response.

A response has n units (tokens, steps, lines), m of them marked. Its AUC is the share of pairs of a marked and an
unmarked unit in which the marked one scores higher; ties count half. Scores of different responses are never compared.
Intervals are bootstrapped over prompts, because responses of a prompt are alike; fewer than `ENOUGH` prompts get none.
The null distribution shifts the marks of each response by a random number of units. What passes the end comes in again
at the beginning. A permutation would take neighbours for independent, but most scores change slowly along a response,
and marks stand side by side. All responses of a prompt are shifted by the same share of their lengths, because their
scores tend to be high at the same positions. The test is two-sided about 1/2, because the sign of a score is fixed in
advance.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..evaluation.metrics import ENDS, ENOUGH


RESAMPLES = 2000
SHIFTS = 2000
SIGNIFICANT = 0.05
SIDES = {"losers": -1, "winners": 1}  # by the sign of the advantage


@dataclass(frozen=True)
class Marked:
    """
    Responses of one side with marks.

    Args:
        scores (`dict[str, list[np.ndarray]]`): By rule: for each response the scores of its n units.
        marks (`list[np.ndarray]`): For each response which units are marked, bool; at least one is, and one is not.
        prompts (`list[int]`): The prompt of each response, numbered from 0.
    """

    scores: dict[str, list[np.ndarray]]
    marks: list[np.ndarray]
    prompts: list[int]


def marked_of(lines: list[dict], sign: int) -> Marked:
    """
    The completions of a side that have marks, but are not marked as a whole. The score of a unit is the mean of its
    tokens'; units without a token are left out.
    """
    scores: dict[str, list[np.ndarray]] = {}
    marks = []
    texts = []
    for line in lines:
        units = np.unique(line["unit"])
        is_marked = np.isin(units, line["marked"])
        is_side = np.sign(line["advantage"]) == sign
        if not is_side or not is_marked.any() or is_marked.all():
            continue
        for rule, of_tokens in line["scores"].items():
            of_units = pd.Series(of_tokens).groupby(line["unit"]).mean()
            scores.setdefault(rule, []).append(of_units.to_numpy())
        marks.append(is_marked)
        texts.append(line["prompt"])
    prompts, _ = pd.factorize(pd.Series(texts, dtype=object))
    return Marked(scores, marks, prompts.tolist())


def shifted_aucs(scores: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """
    Areas (n,) under the ROC curve of one response, for its marks shifted by 0 to n - 1 units. The first area is that
    of the marks as they are.
    """
    m = marks.sum()
    n = len(marks)
    ranks = pd.Series(scores).rank().to_numpy()  # from 1; ties share their mean rank
    places = np.flatnonzero(marks)[:, None] + np.arange(n)  # (m, n): a column for every shift
    sums = ranks[places % n].sum(axis=0)
    least = m * (m + 1) / 2
    return (sums - least) / (m * (n - m))


def identification(marked: Marked, seed: int = 0) -> dict[str, dict]:
    """
    For each rule: `auc` and its `interval`; `p` of the test by shifts; `chance`, which is "above" or "below" if p and
    the interval agree on that, else ""; the numbers of `responses` and `prompts`.
    """
    rng = np.random.default_rng(seed)
    sizes = np.bincount(marked.prompts)  # responses of each of P prompts
    P = len(sizes)
    draws = rng.multinomial(P, np.full(P, 1 / P), size=RESAMPLES)
    shares = rng.random((P, SHIFTS))  # of a response's length; all rules see the same shifts
    results = {}
    for rule, of_rule in marked.scores.items():
        aucs = np.zeros(len(of_rule))
        null = np.zeros(SHIFTS)
        for i, (scores, marks) in enumerate(zip(of_rule, marked.marks, strict=True)):
            shifted = shifted_aucs(scores, marks)
            share = shares[marked.prompts[i]]
            shifts = (share * len(marks)).astype(int)
            aucs[i] = shifted[0]
            null += shifted[shifts] / len(of_rule)
        mean = float(aucs.mean())
        # rounding must not make the observed value less extreme than its equal among the shifts
        extreme = abs(null - 0.5) >= abs(mean - 0.5) - 1e-12
        p = float((1 + extreme.sum()) / (1 + SHIFTS))
        interval = None
        chance = ""
        if P >= ENOUGH:
            totals = np.bincount(marked.prompts, aucs)
            resampled = (draws @ totals) / (draws @ sizes)
            interval = np.quantile(resampled, ENDS).tolist()
            low, high = interval
            if p <= SIGNIFICANT and low > 0.5:
                chance = "above"
            elif p <= SIGNIFICANT and high < 0.5:
                chance = "below"
        results[rule] = {
            "auc": mean,
            "interval": interval,
            "p": p,
            "chance": chance,
            "responses": len(aucs),
            "prompts": P,
        }
    return results
