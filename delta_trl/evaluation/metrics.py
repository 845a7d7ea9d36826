"""
avg@k, pass@k and bootstrap intervals of rewards of shape (problems, samples).

A missing reward is NaN: it counts as no sample, never as 0.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd


RESAMPLES = 10_000
ENDS = (0.025, 0.975)  # of an interval of 95 %, as quantiles of the resamples
ENOUGH = 10  # problems, or an audit's prompts: of 3, intervals of 95 % hold the mean 77 % of the time
ROUNDING = 1e-12  # values that differ by no more are equal


def problem_means(rewards: np.ndarray, prompts: Sequence[str] | None = None) -> pd.Series:  # (P, k) -> (P,)
    """
    Each problem's mean reward over its scored samples, by its prompt; NaN for a problem without any. Their mean is
    avg@k.
    """
    return pd.DataFrame(rewards, index=prompts).mean(axis=1)


def pass_at_k(rewards: np.ndarray, k: int) -> float:
    """
    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374): the mean over problems of 1 - C(n - c, k) / C(n, k)
    for n scored samples, of which c are right (a reward of at least 1). NaN if any scored problem has fewer than k
    samples: leaving it out would change the set of problems.
    """
    passes = []
    for row in rewards:
        scored = row[~np.isnan(row)]
        n = len(scored)
        wrong = np.sum(scored < 1.0)
        if 0 < n < k:
            return math.nan
        if n:
            none_is_right = math.comb(wrong, k) / math.comb(n, k)
            passes.append(1.0 - none_is_right)
    return float(pd.Series(passes, dtype=float).mean())


def bootstrap_interval(values: pd.Series) -> tuple[float, float]:  # (P,)
    """
    Percentile bootstrap interval, of 95 %, of the mean over problems of their mean rewards, or in a paired comparison
    of their differences. NaN is left out. Values of the same prompt, which is their index, are drawn together. The
    interval is NaN where [`no_interval`] says why.
    """
    if no_interval(values):
        return math.nan, math.nan
    scored = values.dropna()
    by_prompt = scored.groupby(scored.index, sort=False).agg(["sum", "count"]).to_numpy()
    rng = np.random.default_rng(0)
    means = []
    for _ in range(RESAMPLES):
        total, count = rng.choice(by_prompt, len(by_prompt)).sum(axis=0)
        means.append(total / count)
    low, high = np.quantile(means, ENDS)
    return low, high


def no_interval(values: pd.Series) -> str:
    """Why values have no interval: it would be far too narrow. Empty if they have one."""
    scored = values.dropna()
    if scored.index.nunique() < ENOUGH:
        return f"fewer than {ENOUGH} prompts"
    return "all are equal" if np.ptp(scored) <= ROUNDING else ""
