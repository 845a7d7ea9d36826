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
    totals, counts = np.where(scored, rewards, 0.0).sum(axis=1), scored.sum(axis=1)
    return np.divide(totals, counts, out=np.full(len(rewards), np.nan), where=counts > 0)


def avg_at_k(rewards: np.ndarray) -> float:
    """avg@k: the mean over problems of their mean reward. NaN if nothing was scored."""
    means = problem_means(rewards)
    return float(np.nanmean(means)) if np.isfinite(means).any() else math.nan


def pass_at_k(rewards: np.ndarray, k: int) -> float:
    """
    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374): the mean over problems of 1 - C(n - c, k) / C(n, k)
    for n scored samples, of which c are right (a reward of at least 1). NaN if any scored problem has fewer than k
    samples: leaving it out would change the set of problems.
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
    means = [values[rng.integers(0, len(values), len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, ENDS)
    return float(low), float(high)
