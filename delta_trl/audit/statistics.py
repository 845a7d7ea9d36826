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


def marked_of(lines: list[dict], rules: list[str], sign: int) -> Marked:
    """The completions of a side that have marks, but are not marked as a whole."""
    chosen = []
    marks = []
    for line in lines:
        own = np.isin(np.unique(line["unit"]), line["marked"])
        if np.sign(line["advantage"]) == sign and own.any() and not own.all():
            chosen.append(line)
            marks.append(own)
    numbers = {prompt: i for i, prompt in enumerate(dict.fromkeys(line["prompt"] for line in chosen))}
    scores = {rule: [unit_scores(line, rule) for line in chosen] for rule in rules}
    return Marked(scores, marks, [numbers[line["prompt"]] for line in chosen])


def unit_scores(line: dict, rule: str) -> np.ndarray:
    """Mean score of each unit of a completion, in order; units without a token are left out."""
    numbers = np.unique(line["unit"], return_inverse=True)[1]
    return np.bincount(numbers, line["scores"][rule]) / np.bincount(numbers)


def ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of each score among all (n,), from 1 for the lowest to n; ties share their mean rank."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def shifted_aucs(of_response: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """
    Areas (n,) under the ROC curve of one response, from the ranks of its scores, for its marks shifted by 0 to n - 1
    units. The first area is that of the marks as they are.
    """
    m = marks.sum()
    n = len(marks)
    transformed = np.fft.rfft(of_response) * np.fft.rfft(marks).conj()
    # the sum of the marked ranks for every shift; a multiple of 1/2, since ties share their mean rank
    sums = np.round(2 * np.fft.irfft(transformed, n)) / 2
    return (sums - m * (m + 1) / 2) / (m * (n - m))


def identification(marked: Marked, seed: int = 0) -> dict[str, dict]:
    """
    For each rule: `auc` and its `interval`; `p` of the test by shifts; `chance`, which is "above" or "below" if p and
    the interval agree on that, else ""; the numbers of `responses` and `prompts`.
    """
    rng = np.random.default_rng(seed)
    P = max(marked.prompts) + 1
    draws = rng.multinomial(P, np.full(P, 1 / P), size=RESAMPLES)
    shares = rng.random((P, SHIFTS))  # of a response's length; all rules see the same shifts
    results = {}
    for rule, of_rule in marked.scores.items():
        aucs = np.zeros(len(of_rule))
        null = np.zeros(SHIFTS)
        for i, (scores, marks) in enumerate(zip(of_rule, marked.marks, strict=True)):
            shifted = shifted_aucs(ranks(scores), marks)
            shifts = (shares[marked.prompts[i]] * len(marks)).astype(int)
            aucs[i] = shifted[0]
            null += shifted[shifts] / len(of_rule)
        mean = float(aucs.mean())
        resampled = (draws @ np.bincount(marked.prompts, aucs)) / (draws @ np.bincount(marked.prompts))
        # rounding must not make the observed value less extreme than its equal among the shifts
        extreme = abs(null - 0.5) >= abs(mean - 0.5) - 1e-12
        p = float((1 + extreme.sum()) / (1 + SHIFTS))
        interval = np.quantile(resampled, ENDS).tolist() if P >= ENOUGH else None
        certain = interval is not None and p <= SIGNIFICANT and not interval[0] <= 0.5 <= interval[1]
        results[rule] = {
            "auc": mean,
            "interval": interval,
            "p": p,
            "chance": ("above" if mean > 0.5 else "below") if certain else "",
            "responses": len(aucs),
            "prompts": P,
        }
    return results
