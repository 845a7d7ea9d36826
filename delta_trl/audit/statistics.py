"""
How well scores find the marked units of a response, and how well gradients agree.

A response has n units (tokens, steps, lines), m of them marked. Its AUC is the share of pairs of a marked and an
unmarked unit in which the marked one scores higher; ties count half. Scores of different responses are never compared.
Intervals are bootstrapped over prompts, because responses of a prompt are alike; fewer than `ENOUGH` prompts get none.
The null distribution permutes the marks within each response. All responses of a prompt share one permutation of
positions, because their scores tend to be high at the same positions. The test is two-sided about 1/2, because the
sign of a score is fixed in advance.
"""

from dataclasses import dataclass

import numpy as np

from ..arguments.errors import UsageError
from ..evaluation.metrics import ENOUGH


try:
    from scipy import stats
except ImportError as error:
    raise UsageError("delta-trl audit needs scipy: pip install scipy") from error

RESAMPLES = 2000
PERMUTATIONS = 2000
MOST_DRAWN = 2e8  # random numbers for the permutations of one side
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Marked:
    """
    Responses of one side with marks.

    Args:
        scores (`dict[str, list[np.ndarray]]`): By rule: for each response the scores of its n units.
        marks (`list[np.ndarray]`): For each response which units are marked, bool; at least one is, and one is not.
        groups (`list[int]`): The prompt of each response.
    """

    scores: dict[str, list[np.ndarray]]
    marks: list[np.ndarray]
    groups: list[int]


def percentiles(scores: np.ndarray) -> np.ndarray:
    """The rank of each score among all, from 0 for the lowest to 1 for the highest; ties share their mean rank."""
    return (stats.rankdata(scores) - 0.5) / len(scores)


def auc(ranks: np.ndarray, marks: np.ndarray) -> float:
    """Area under the ROC curve of one response, from the ranks of its scores; ties share their mean rank."""
    m, n = marks.sum(), len(marks)
    return float((ranks[marks].sum() - m * (m + 1) / 2) / (m * (n - m)))


def identification(marked: Marked, seed: int = 0) -> dict[str, dict]:
    """
    For each rule: `auc` and its `interval`; `equal`, whether all units of a response have the same score;
    `percentile`, the mean rank of the marked units in their responses, 0 to 1; `p` of the permutation test;
    and the numbers of `responses` and `prompts`.
    """
    rng = np.random.default_rng(seed)
    R, longest = len(marked.marks), max(map(len, marked.marks))
    numbers = np.unique(marked.groups, return_inverse=True)[1]
    draws = rng.multinomial(numbers.max() + 1, np.full(numbers.max() + 1, 1 / (numbers.max() + 1)), size=RESAMPLES)
    ranks = {name: [stats.rankdata(one) for one in of_rule] for name, of_rule in marked.scores.items()}
    nulls = _null(ranks, marked.marks, numbers, longest, rng)
    results = {}
    for name, of_rule in ranks.items():
        aucs = np.array([auc(r, m) for r, m in zip(of_rule, marked.marks, strict=True)])
        sums, counts = np.bincount(numbers, aucs), np.bincount(numbers)
        resampled = (draws @ sums) / (draws @ counts)
        places = [(r[m] - 0.5).mean() / len(m) for r, m in zip(of_rule, marked.marks, strict=True)]
        away = abs(aucs.mean() - 0.5) - 1e-12
        results[name] = {
            "auc": float(aucs.mean()),
            "interval": [float(x) for x in np.quantile(resampled, (0.025, 0.975))] if sums.size >= ENOUGH else None,
            "equal": bool(all(np.ptp(one) == 0 for one in marked.scores[name])),
            "percentile": float(np.mean(places)),
            "p": float((1 + (abs(nulls[name] - 0.5) >= away).sum()) / (1 + len(nulls[name]))),
            "responses": R,
            "prompts": int(numbers.max() + 1),
        }
    return results


def _null(
    ranks: dict[str, list[np.ndarray]],
    marks: list[np.ndarray],
    prompts: np.ndarray,
    longest: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Mean AUCs of each rule for randomly permuted marks; all rules see the same permutations."""
    R = len(marks)
    lengths, m = np.array([len(x) for x in marks]), np.array([x.sum() for x in marks])
    padded = np.zeros((len(ranks), R, longest))
    for row, of_rule in zip(padded, ranks.values(), strict=True):
        for values, one in zip(row, of_rule, strict=True):
            values[: len(one)] = one
    beyond = np.arange(longest) >= lengths[:, None]
    permutations = int(np.clip(MOST_DRAWN / (R * longest), 200, PERMUTATIONS))
    nulls = np.zeros((len(ranks), permutations))
    for i in range(permutations):
        keys = rng.random((prompts.max() + 1, longest))[prompts]
        keys[beyond] = 2.0
        bound = np.take_along_axis(np.sort(keys, axis=1), m[:, None] - 1, axis=1)
        drawn = keys <= bound
        sums = (padded * drawn).sum(axis=2)
        nulls[:, i] = ((sums - m * (m + 1) / 2) / (m * (lengths - m))).mean(axis=1)
    return dict(zip(ranks, nulls, strict=True))


def agreement(gradients: dict[str, np.ndarray], reference: np.ndarray, baseline: str) -> dict[str, dict]:
    """
    How each rule's gradients of b rollout batches agree with a reference from other batches.

    Args:
        gradients (`dict[str, np.ndarray]`): Of each rule, `(b, size)`.
        reference (`np.ndarray` of shape `(r, size)`): Of other batches under uniform credit.
        baseline (`str`): The rule that the others are compared with, batch by batch.

    Returns:
        For each rule: `cosine` of a batch's gradient with the mean of the reference, averaged over batches, with its
        `interval`; its `difference` from the baseline's with `difference_interval`; `noise`, the variance of a batch's
        gradient over the squared length of its expectation; `bias_cosine`, the cosine of the rule's and the
        reference's expectations, with `bias_interval` by jackknife. `noise` and `bias_cosine` are corrected for noise,
        and `None` where that leaves no signal. Batches without a gradient are left out; empty if no other is left.
    """
    counted = (gradients[baseline] != 0).any(axis=1)  # a batch without contrast has no direction
    gradients = {name: g[counted] for name, g in gradients.items()}
    reference = reference[(reference != 0).any(axis=1)]
    if not counted.any() or not len(reference):
        return {}
    mean = reference.mean(axis=0)
    length = float(np.linalg.norm(mean))
    base = _cosines(gradients[baseline], mean, length)
    signal = _signal(reference)
    results = {}
    for name, g in gradients.items():
        cosines = _cosines(g, mean, length)
        bias = _bias(g, mean, signal)
        left_out = [_bias(np.delete(g, i, axis=0), mean, signal) for i in range(len(g))] if len(g) > 2 else []
        results[name] = {
            "cosine": float(cosines.mean()),
            "interval": _t_interval(cosines),
            "difference": float((cosines - base).mean()),
            "difference_interval": _t_interval(cosines - base),
            "noise": _noise(g),
            "bias_cosine": bias,
            "bias_interval": _jackknife(bias, left_out),
            "batches": len(g),
        }
    return results


def _cosines(g: np.ndarray, mean: np.ndarray, length: float) -> np.ndarray:
    return (g @ mean) / np.maximum(np.linalg.norm(g, axis=1) * length, 1e-30)


def _signal(g: np.ndarray) -> float:
    """Unbiased estimate of the squared length of the expectation: from pairs of different batches."""
    if len(g) < 2:
        return float("nan")
    products = g @ g.T
    return float((products.sum() - np.trace(products)) / (len(g) * (len(g) - 1)))


def _noise(g: np.ndarray) -> float | None:
    signal = _signal(g)
    return float((g**2).sum(axis=1).mean() / signal - 1) if signal > 0 else None


def _bias(g: np.ndarray, mean: np.ndarray, reference_signal: float) -> float | None:
    signal = _signal(g)
    if not (signal > 0 and reference_signal > 0):
        return None
    return float(g.mean(axis=0) @ mean / np.sqrt(signal * reference_signal))


def _jackknife(value: float | None, left_out: list[float | None]) -> list[float] | None:
    if value is None or not left_out or None in left_out:
        return None
    n, values = len(left_out), np.array(left_out, dtype=float)
    half = _t(n - 1) * float(np.sqrt((n - 1) / n * ((values - values.mean()) ** 2).sum()))
    return [value - half, value + half]


def _t_interval(values: np.ndarray) -> list[float] | None:
    if len(values) < 2:
        return None
    half = _t(len(values) - 1) * float(stats.sem(values))
    return [float(values.mean()) - half, float(values.mean()) + half]


def _t(degrees: int) -> float:
    """97.5 % quantile of Student's t."""
    return float(stats.t.ppf(0.975, degrees))
