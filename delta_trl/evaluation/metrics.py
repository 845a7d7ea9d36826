"""
avg@k, pass@k, bootstrap intervals and tests on rewards of shape (problems, samples).

A missing reward is NaN: it counts as no sample, never as 0.
"""

import math
from collections.abc import Sequence

import numpy as np


RESAMPLES = 10_000
BLOCK = 500  # of them that are drawn at a time
ENDS = (0.025, 0.975)  # of an interval of 95 %, as quantiles of the resamples
ENOUGH = 10  # problems, or an audit's prompts: of 3, intervals of 95 % hold the mean 77 % of the time
ROUNDING = 1e-12  # a mean of differences as small as this is 0


def problem_means(rewards: np.ndarray) -> np.ndarray:  # (P, k) -> (P,)
    """Each problem's mean reward over its scored samples; NaN for a problem without any."""
    scored = ~np.isnan(rewards)
    totals, counts = np.where(scored, rewards, 0.0).sum(axis=1), scored.sum(axis=1)
    return np.divide(totals, counts, out=np.full(len(rewards), np.nan), where=counts > 0)


def run_means(rewards: np.ndarray) -> np.ndarray:  # (P, k) -> (k,)
    """The accuracy of each evaluation run: run i is sample i of every problem. Runs without a score are left out."""
    return _scored(problem_means(rewards.T))


def avg_at_k(rewards: np.ndarray) -> float:
    """avg@k: the mean over problems of their mean reward. NaN if nothing was scored."""
    means = _scored(problem_means(rewards))
    return float(means.mean()) if len(means) else math.nan


def pass_at_k(rewards: np.ndarray, k: int) -> float:
    """
    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374): the mean over problems of 1 - C(n - c, k) / C(n, k)
    for n scored samples, of which c are right (a reward of at least 1). NaN if a problem of those that `avg_at_k`
    counts has fewer than k: without it, the number would be that of other problems.
    """
    n = (~np.isnan(rewards)).sum(axis=1)
    c = (rewards >= 1.0).sum(axis=1)
    n, c = n[n > 0], c[n > 0]
    if not len(n) or n.min() < k:
        return math.nan
    # C(n - c, k) / C(n, k) = Π_{i < k} (n - c - i) / (n - i); a factor is 0 where fewer than k are wrong
    i = np.arange(k)
    factors = np.clip(n[:, None] - c[:, None] - i, 0, None) / (n[:, None] - i)
    return float(1.0 - factors.prod(axis=1).mean())


def bootstrap_interval(benchmarks: Sequence[np.ndarray]) -> tuple[float, float]:
    """
    Percentile bootstrap interval, of 95 %, of avg@k over problems. NaN with fewer than `ENOUGH` scored problems, or if
    all their means are equal: it would be far too narrow.

    Args:
        benchmarks (`Sequence[np.ndarray]`):
            Rewards (P_b, k) of each benchmark. Problems are resampled within each; the interval is that of the average
            over all problems.
    """
    means = [_scored(problem_means(rewards)) for rewards in benchmarks]
    return _interval(means, _resampled_means(means))


def scored_for_both(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rewards (P, k) and (P, k') of those of P problems that have a scored sample of both models."""
    both = ~np.isnan(problem_means(first) + problem_means(second))
    return first[both], second[both]


def paired_bootstrap(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> tuple[float, float, float, float]:
    """
    Paired bootstrap over problems: the same problems are drawn for both models.

    Args:
        first, second (`Sequence[np.ndarray]`):
            Rewards (P_b, k) of each benchmark, of problems scored for both; the numbers of samples may differ.

    Returns:
        `tuple[float, float, float, float]`: avg@k of `first` minus that of `second`, the interval of it, and p, the
        share of resamples in which `first` is not ahead (with one added to both counts, so that it is never 0). With
        fewer than `ENOUGH` problems, interval and p are NaN; the interval also if all differences are equal.
    """
    differences = [problem_means(a) - problem_means(b) for a, b in zip(first, second, strict=True)]
    every, resampled = np.concatenate(differences), _resampled_means(differences)
    difference = float(every.mean()) if len(every) else math.nan
    p = (1 + (resampled <= ROUNDING).sum()) / (RESAMPLES + 1) if len(every) >= ENOUGH else math.nan
    return difference, *_interval(differences, resampled), float(p)


def _scored(means: np.ndarray) -> np.ndarray:
    return means[~np.isnan(means)]


def _resampled_means(groups: Sequence[np.ndarray]) -> np.ndarray:  # (RESAMPLES,)
    """Means over all groups, each resampled within itself."""
    rng, totals = np.random.default_rng(0), np.zeros(RESAMPLES)
    for values in filter(len, groups):
        for start in range(0, RESAMPLES, BLOCK):
            drawn = rng.integers(0, len(values), (BLOCK, len(values)))
            totals[start : start + BLOCK] += values[drawn].sum(axis=1)
    return totals / max(1, sum(map(len, groups)))


def _interval(groups: Sequence[np.ndarray], resampled: np.ndarray) -> tuple[float, float]:
    every = np.concatenate(groups)
    if len(every) < ENOUGH or np.ptp(every) <= ROUNDING:
        return math.nan, math.nan
    low, high = np.quantile(resampled, ENDS)
    return float(low), float(high)
