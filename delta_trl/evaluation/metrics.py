"""
avg@k, pass@k and bootstrap intervals of rewards of shape (problems, samples).

A missing reward is NaN: it counts as no sample, never as 0.
"""

import math

import numpy as np


RESAMPLES = 10_000
ENDS = (0.025, 0.975)  # of an interval of 95 %, as quantiles of the resamples
ENOUGH = 10  # problems, or an audit's prompts: of 3, intervals of 95 % hold the mean 77 % of the time
ROUNDING = 1e-12  # values that differ by no more are equal


def problem_means(rewards: np.ndarray) -> np.ndarray:  # (P, k) -> (P,)
    """Each problem's mean reward over its scored samples; NaN for a problem without any."""
    scored = ~np.isnan(rewards)
    counts = scored.sum(axis=1)
    totals = np.where(scored, rewards, 0.0).sum(axis=1)
    unscored = np.full(len(rewards), np.nan)
    return np.divide(totals, counts, out=unscored, where=counts > 0)


def avg_at_k(rewards: np.ndarray) -> float:
    """avg@k: the mean over problems of their mean reward. NaN if nothing was scored."""
    means = problem_means(rewards)
    means = means[~np.isnan(means)]
    if len(means) == 0:
        return math.nan
    return float(means.mean())


def pass_at_k(rewards: np.ndarray, k: int) -> float:
    """
    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374): the mean over problems of 1 - C(n - c, k) / C(n, k)
    for n scored samples, of which c are right (a reward of at least 1). NaN if any scored problem has fewer than k
    samples: leaving it out would change the set of problems.
    """
    n = np.isfinite(rewards).sum(axis=1)
    right = (rewards >= 1.0).sum(axis=1)
    is_scored = n > 0
    n = n[is_scored, None]
    wrong = n - right[is_scored, None]
    if len(n) == 0 or n.min() < k:
        return math.nan
    # C(n - c, k) / C(n, k) = Π_{i < k} (n - c - i) / (n - i); a factor is 0 where fewer than k are wrong
    i = np.arange(k)
    factors = np.maximum(wrong - i, 0) / (n - i)
    none_is_right = factors.prod(axis=1)
    return float(1.0 - none_is_right.mean())


def bootstrap_interval(values: np.ndarray) -> tuple[float, float]:  # (P,)
    """
    Percentile bootstrap interval, of 95 %, of the mean over problems of their mean rewards, or in a paired comparison
    of their differences. NaN is left out. The interval is NaN with fewer than `ENOUGH` problems, or if all values are
    equal: it would be far too narrow.
    """
    values = values[~np.isnan(values)]
    if len(values) < ENOUGH or np.ptp(values) <= ROUNDING:
        return math.nan, math.nan
    rng = np.random.default_rng(0)
    n = len(values)
    means = []
    for _ in range(RESAMPLES):
        resample = values[rng.integers(0, n, n)]
        means.append(resample.mean())
    low, high = np.quantile(means, ENDS)
    return float(low), float(high)
