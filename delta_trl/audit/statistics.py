"""
How well scores find the marked units of a response.

A response has n units (tokens, steps, lines), m of them marked. Its AUC is the share of pairs of a marked and an
unmarked unit in which the marked one scores higher; ties count half. Scores of different responses are never compared.
Intervals are bootstrapped over prompts, because responses of a prompt are alike; fewer than `ENOUGH` prompts get none.
The null distribution permutes the marks within each response. All responses of a prompt share one permutation of
positions, because their scores tend to be high at the same positions. The test is two-sided about 1/2, because the
sign of a score is fixed in advance.
"""

from dataclasses import dataclass

import numpy as np

from ..evaluation.metrics import ENDS, ENOUGH


RESAMPLES = 2000
PERMUTATIONS = 2000
MOST_DRAWN = 2e8  # random numbers for the permutations of one side
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
    chosen, marks = [], []
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


def auc(of_response: np.ndarray, marks: np.ndarray) -> float:
    """Area under the ROC curve of one response, from the ranks of its scores."""
    m, n = marks.sum(), len(marks)
    return float((of_response[marks].sum() - m * (m + 1) / 2) / (m * (n - m)))


def identification(marked: Marked, seed: int = 0) -> dict[str, dict]:
    """
    For each rule: `auc` and its `interval`; `p` of the permutation test; `chance`, "above" or "below" if p decides
    that, else ""; the numbers of `responses` and `prompts`.
    """
    rng = np.random.default_rng(seed)
    P = max(marked.prompts) + 1
    draws = rng.multinomial(P, np.full(P, 1 / P), size=RESAMPLES)
    ranked = {rule: [ranks(one) for one in of_rule] for rule, of_rule in marked.scores.items()}
    nulls = _null(ranked, marked, rng)
    results = {}
    for rule, of_rule in ranked.items():
        aucs = np.array([auc(r, m) for r, m in zip(of_rule, marked.marks, strict=True)])
        mean = float(aucs.mean())
        resampled = (draws @ np.bincount(marked.prompts, aucs)) / (draws @ np.bincount(marked.prompts))
        # rounding must not make the observed value less extreme than its equal among the permutations
        p = float((1 + (abs(nulls[rule] - 0.5) >= abs(mean - 0.5) - 1e-12).sum()) / (1 + len(nulls[rule])))
        certain = p <= SIGNIFICANT and P >= ENOUGH
        results[rule] = {
            "auc": mean,
            "interval": np.quantile(resampled, ENDS).tolist() if P >= ENOUGH else None,
            "p": p,
            "chance": ("above" if mean > 0.5 else "below") if certain else "",
            "responses": len(aucs),
            "prompts": P,
        }
    return results


def _null(ranked: dict[str, list[np.ndarray]], marked: Marked, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """
    Mean AUCs for randomly permuted marks, of shape (permutations,) for each rule. All rules see the same permutations.
    """
    lengths, m = (np.array([f(x) for x in marked.marks]) for f in (len, np.sum))  # (R,)
    R, longest = len(lengths), lengths.max()
    padded = np.zeros((len(ranked), R, longest))
    for row, of_rule in zip(padded, ranked.values(), strict=True):
        for values, one in zip(row, of_rule, strict=True):
            values[: len(one)] = one
    beyond = np.arange(longest) >= lengths[:, None]
    nulls = np.zeros((len(ranked), int(np.clip(MOST_DRAWN / (R * longest), 200, PERMUTATIONS))))
    for i in range(nulls.shape[1]):
        keys = rng.random((max(marked.prompts) + 1, longest))[marked.prompts]  # (R, longest), alike for siblings
        keys[beyond] = 2.0
        drawn = keys <= np.take_along_axis(np.sort(keys, axis=1), m[:, None] - 1, axis=1)  # m of each row
        sums = (padded * drawn).sum(axis=2)
        nulls[:, i] = ((sums - m * (m + 1) / 2) / (m * (lengths - m))).mean(axis=1)
    return dict(zip(ranked, nulls, strict=True))
