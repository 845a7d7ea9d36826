"""What paired differences say, one for each seed: Student's t, Holm's correction, and what so many seeds can show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import mpmath
import numpy as np


LEVEL = 0.05  # of tests, and of what an interval leaves out
IN_WORDS = {
    "none": "no token credit",
    "side_mean": "the same weight per side",
    "shuffled": "its weights at random tokens",
}
SMALL = 0.01  # a difference for which the number of seeds is told
POWER = 0.8  # a difference can be seen if at least this share of comparisons would find it


def two_sided_p(t: float, df: int) -> float:
    """The probability that Student's t with `df` degrees of freedom is at least as far from 0 as `t`."""
    return float(mpmath.betainc(df / 2, 0.5, 0, df / (df + t * t), regularized=True))


@cache
def critical_t(p: float, df: int) -> float:
    """The positive t whose two-sided p is `p`."""
    ratio = mpmath.findroot(lambda x: mpmath.betainc(df / 2, 0.5, 0, x, regularized=True) - p, (0, 1), solver="bisect")
    return math.sqrt(df * (1 / ratio - 1))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean of n values, and the half-width of its 95 % interval; NaN for a single value."""
    n = len(values)
    half = math.nan
    if n > 1:
        half = critical_t(LEVEL, n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return float(np.mean(values)), half


def p_value(values: Sequence[float]) -> float:
    """The p of a two-sided t-test that the mean is 0; NaN if the values do not vary."""
    n = len(values)
    if n < 2 or np.ptp(values) == 0:
        return math.nan
    t = float(np.mean(values) / np.std(values, ddof=1)) * math.sqrt(n)
    return two_sided_p(t, n - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values. NaN stays NaN and counts as no test."""
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    corrected, largest = [math.nan] * len(p_values), 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - rank)))
        corrected[i] = largest
    return corrected


def visible_difference(spread: float, n: int, tests: int) -> float:
    """
    The smallest true difference that n seeds show with probability `POWER`, if paired differences have the standard
    deviation `spread` and `tests` of them are tested together.
    """
    needed = critical_t(LEVEL / tests, n - 1) + critical_t(2 * (1 - POWER), n - 1)
    return needed * spread / math.sqrt(n)


def seeds_to_see(difference: float, spread: float, tests: int) -> int:
    """About how many seeds show a true difference with probability `POWER`; Guenther's (1981) approximation."""
    significance, power = map(NormalDist().inv_cdf, (1 - LEVEL / tests / 2, POWER))
    n = ((significance + power) * spread / difference) ** 2 + significance**2 / 2
    return math.ceil(n)


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
    by_seed = {arm: np.subtract(values[rule], values[arm]).tolist() for arm in values if arm != rule}
    p_values = holm(list(map(p_value, by_seed.values())))
    return [Paired(arm, own, *interval(own), p) for (arm, own), p in zip(by_seed.items(), p_values, strict=True)]


def conclusion(rule: str, pairs: Sequence[Paired]) -> str:
    """What can be said of two or more seeds, and what cannot."""
    clear, unclear = [], []
    for one in pairs:
        arm = f"{one.arm} ({IN_WORDS[one.arm]})" if one.arm in IN_WORDS else one.arm
        if one.p <= LEVEL:
            clear.append(f"{'better' if one.mean > 0 else 'worse'} than {arm} by {abs(one.mean):.3f}")
        else:
            unclear.append(arm)
    says = []
    if clear:
        says.append(f"{rule} is {', and '.join(clear)}.")
    if unclear:
        says.append(f"No clear difference between {rule} and {', or '.join(unclear)}.")
    seeds = len(pairs[0].by_seed)
    spread = math.sqrt(np.var([one.by_seed for one in pairs], axis=1, ddof=1).mean())
    if spread > 0:
        smallest = visible_difference(spread, seeds, len(pairs))
        needed = seeds_to_see(SMALL, spread, len(pairs))
        says.append(
            f"With {seeds} seeds, true differences below about {smallest:.3f} mostly remain unseen. "
            f"About {needed} seeds would show {SMALL}."
        )
    return " ".join(says)
