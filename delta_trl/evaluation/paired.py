"""What paired differences say, one for each seed: Student's t, Holm's correction, and what so many seeds can show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import mpmath
import numpy as np


LEVEL = 0.05  # of tests, and of what an interval leaves out
IN_WORDS = {
    "none": "no token credit",
    "side_mean": "the same weight per side",
    "shuffled": "its weights at random tokens",
}
POWER = 0.8  # a difference can be seen if at least this share of comparisons would find it


def two_sided_p(t: float, df: int) -> float:
    """The probability that Student's t with `df` degrees of freedom is at least as far from 0 as `t`."""
    ratio = df / (df + t * t)
    return float(_tail(ratio, df))


@cache
def critical_t(p: float, df: int) -> float:
    """The positive t whose two-sided p is `p`."""
    ratio = mpmath.findroot(lambda x: _tail(x, df) - p, (0, 1), solver="bisect")
    return math.sqrt(df * (1 / ratio - 1))


def _tail(ratio: float, df: int) -> mpmath.mpf:
    """The two-sided p of the t for which df / (df + t²) is `ratio`."""
    return mpmath.betainc(df / 2, 0.5, 0, ratio, regularized=True)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean of n values, and the half-width of its 95 % interval; NaN for a single value."""
    mean = float(np.mean(values))
    n = len(values)
    if n < 2:
        return mean, math.nan
    standard_error = float(np.std(values, ddof=1)) / math.sqrt(n)
    return mean, critical_t(LEVEL, n - 1) * standard_error


def p_value(values: Sequence[float]) -> float:
    """The p of a two-sided t-test that the mean is 0; NaN if the values do not vary."""
    n = len(values)
    if n < 2 or np.ptp(values) == 0:
        return math.nan
    standard_error = np.std(values, ddof=1) / math.sqrt(n)
    t = float(np.mean(values) / standard_error)
    return two_sided_p(t, n - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values. NaN stays NaN and counts as no test."""
    corrected = [math.nan] * len(p_values)
    left = np.isfinite(p_values).sum()
    largest = 0.0
    for i in np.argsort(p_values):  # NaN last
        if left == 0:
            break
        largest = max(largest, min(1.0, p_values[i] * left))
        corrected[i] = float(largest)
        left -= 1
    return corrected


def visible_difference(spread: float, n: int, tests: int) -> float:
    """
    The smallest true difference that n seeds show with probability `POWER`, if paired differences have the standard
    deviation `spread` and `tests` of them are tested together.
    """
    to_be_clear = critical_t(LEVEL / tests, n - 1)
    to_be_so_often = critical_t(2 * (1 - POWER), n - 1)
    return (to_be_clear + to_be_so_often) * spread / math.sqrt(n)


@dataclass(frozen=True)
class Paired:
    """The rule minus another arm: by seed, its mean with the half-width of the 95 % interval, and its corrected p."""

    arm: str
    by_seed: list[float]
    mean: float
    half: float
    p: float


def pair(values: dict[str, Sequence[float]], rule: str) -> list[Paired]:
    """Compare `rule` with each other arm. `values` are those of each arm by seed; p is corrected for all arms."""
    by_arm = {}
    for arm, own in values.items():
        if arm != rule:
            by_arm[arm] = np.subtract(values[rule], own).tolist()
    corrected = holm([p_value(by_seed) for by_seed in by_arm.values()])
    pairs = []
    for arm, p in zip(by_arm, corrected, strict=True):
        mean, half = interval(by_arm[arm])
        pairs.append(Paired(arm, by_arm[arm], mean, half, p))
    return pairs


def conclusion(rule: str, pairs: Sequence[Paired]) -> str:
    """What can be said of two or more seeds, and what cannot."""
    says = []
    for one in pairs:
        arm = f"{one.arm} ({IN_WORDS[one.arm]})" if one.arm in IN_WORDS else one.arm
        if one.p <= LEVEL:
            direction = "better" if one.mean > 0 else "worse"
            says.append(f"{rule} is {direction} than {arm} by {abs(one.mean):.3f}.")
        else:
            says.append(f"No clear difference between {rule} and {arm}.")
    variances = np.var([one.by_seed for one in pairs], axis=1, ddof=1)
    spread = math.sqrt(variances.mean())
    if spread > 0:
        seeds = len(pairs[0].by_seed)
        smallest = visible_difference(spread, seeds, len(pairs))
        says.append(f"With {seeds} seeds, true differences below about {smallest:.3f} mostly remain unseen.")
    return " ".join(says)
