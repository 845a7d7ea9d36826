"""What paired differences say, one for each seed: Student's t, Holm's correction, and what so many seeds can show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import mpmath
import numpy as np
import pandas as pd


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
    return float(_two_sided_p(df / (df + t * t), df))


def _two_sided_p(ratio: float, df: int) -> mpmath.mpf:
    return mpmath.betainc(df / 2, 0.5, 0, ratio, regularized=True)


@cache
def critical_t(p: float, df: int) -> float:
    """The positive t whose two-sided p is `p`."""
    ratio = mpmath.findroot(lambda x: _two_sided_p(x, df) - p, (0, 1), solver="bisect")
    return math.sqrt(df * (1 / ratio - 1))


def t_test(values: Sequence[float]) -> tuple[float, float, float]:
    """
    The mean of n values, the half-width of its 95 % interval, and the p of a two-sided test that it is 0. The latter
    two are NaN for a single value. p is NaN if the values do not vary.
    """
    series = pd.Series(values)
    mean = series.mean()
    df = len(series) - 1
    if df == 0:
        return mean, math.nan, math.nan
    error = series.sem()
    half = critical_t(LEVEL, df) * error
    p = math.nan
    if series.nunique() > 1:
        p = two_sided_p(mean / error, df)
    return mean, half, p


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values. NaN stays NaN and counts as no test."""
    in_order = pd.Series(p_values).dropna().sort_values()
    tests_left = np.arange(len(in_order), 0, -1)
    corrected = (in_order * tests_left).clip(upper=1.0).cummax()
    return corrected.reindex(range(len(p_values))).tolist()


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
    by_arm = pd.DataFrame(values)
    differences = by_arm.drop(columns=rule).rsub(by_arm[rule], axis=0)
    pairs = []
    for arm, by_seed in differences.items():
        pairs.append(Paired(arm, by_seed.tolist(), *t_test(by_seed)))
    corrected = holm([one.p for one in pairs])
    return [replace(one, p=p) for one, p in zip(pairs, corrected, strict=True)]


def conclusion(rule: str, pairs: Sequence[Paired]) -> str:
    """What can be said of two or more seeds, and what cannot."""
    clear = []
    unclear = []
    for one in pairs:
        arm = one.arm
        if arm in IN_WORDS:
            arm += f" ({IN_WORDS[arm]})"
        if one.p <= LEVEL:
            direction = "better" if one.mean > 0 else "worse"
            clear.append(f"{direction} than {arm} by {abs(one.mean):.3f}")
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
