"""
What differences by seed say: Student's t, Holm's correction, and the power of so many seeds.

Power is the probability that the test finds a true difference. It is that of the noncentral t distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import mpmath
import numpy as np
import pandas as pd

from .metrics import ROUNDING


LEVEL = 0.05  # of tests, and of what an interval leaves out
NORMAL = NormalDist()
IN_WORDS = {
    "none": "no token credit",
    "side_mean": "the same weight per side",
    "shuffled": "its weights at random tokens",
}
POWER = 0.8
SMALL = (
    0.01  # a difference in a share, for which the number of seeds is told; of other outcomes, a tenth of their range
)
ENOUGH = 5  # seeds; the spread of fewer does not say how many are needed


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
    two are NaN for a single value. p is NaN if the values are equal, up to rounding.
    """
    series = pd.Series(values)
    mean = series.mean()
    df = len(series) - 1
    if df == 0:
        return mean, math.nan, math.nan
    error = series.sem()
    half = critical_t(LEVEL, df) * error
    p = math.nan
    if np.ptp(series) > ROUNDING:
        p = two_sided_p(mean / error, df)
    return mean, half, p


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values. NaN stays NaN and counts as no test."""
    in_order = pd.Series(p_values).dropna().sort_values()
    tests_left = np.arange(len(in_order), 0, -1)
    corrected = (in_order * tests_left).clip(upper=1.0).cummax()
    return corrected.reindex(range(len(p_values))).tolist()


def power(shift: float, df: int, p: float) -> float:
    """
    The probability that a two-sided test with level `p` finds a difference of `shift` standard errors, with its sign.

    The standard error is estimated: its estimate is s times as large, where df s² has a χ² distribution.
    """
    most = 1 + 10 / math.sqrt(2 * df)
    s = np.linspace(0.0, most, 4001)[1:]
    log_density = (df - 1) * np.log(s) - df * s**2 / 2
    density = np.exp(log_density - log_density.max())
    found = critical_t(p, df) * s  # the least distances from 0
    shares = [NORMAL.cdf(shift - least) for least in found]
    return float(np.average(shares, weights=density))


@cache
def visible_shift(n: int, tests: int) -> float:
    """How many standard errors of n seeds are found with probability `POWER`, if `tests` are corrected together."""
    p = LEVEL / tests
    most = 4 * critical_t(p, n - 1)
    return float(mpmath.findroot(lambda x: power(float(x), n - 1, p) - POWER, (0, most), solver="bisect", tol=1e-6))


def visible_difference(spread: float, n: int, tests: int) -> float:
    """
    The true difference that n seeds show with probability `POWER`, if paired differences have the standard deviation
    `spread` and `tests` of them are tested together.
    """
    return visible_shift(n, tests) * spread / math.sqrt(n)


def seeds_to_see(difference: float, spread: float, tests: int) -> int:
    """About how many seeds show a true difference with probability `POWER`; Guenther's (1981) approximation."""
    significance, wanted = map(NORMAL.inv_cdf, (1 - LEVEL / tests / 2, POWER))
    n = ((significance + wanted) * spread / difference) ** 2 + significance**2 / 2
    return math.ceil(n)


@dataclass(frozen=True)
class Paired:
    """
    The rule minus another arm: by seed, its mean with the half-width of the 95 % interval, and its corrected p, NaN if
    all seeds have the same difference.
    """

    arm: str
    by_seed: list[float]
    mean: float
    half: float
    p: float

    @property
    def test(self) -> str:
        """p in words."""
        if math.isnan(self.p):
            return "the same for every seed: no test"
        return "< 0.001" if self.p < 0.001 else f"{self.p:.3f}"


def pair(values: dict[str, Sequence[float]], rule: str) -> list[Paired]:
    """Compare `rule` with each other arm. `values` are those of each arm by seed; p is corrected for all arms."""
    by_arm = pd.DataFrame(values)
    differences = by_arm.drop(columns=rule).rsub(by_arm[rule], axis=0)
    pairs = []
    for arm, by_seed in differences.items():
        pairs.append(Paired(arm, by_seed.tolist(), *t_test(by_seed)))
    corrected = holm([paired.p for paired in pairs])
    return [replace(paired, p=p) for paired, p in zip(pairs, corrected, strict=True)]


def conclusion(rule: str, pairs: Sequence[Paired], values: dict[str, Sequence[float]]) -> str:
    """What can be said of two or more seeds, and what cannot. `values` are those that were compared by [`pair`]."""
    better_or_worse = []
    unclear = []
    says = []
    for paired in pairs:
        arm = paired.arm
        if arm in IN_WORDS:
            arm += f" ({IN_WORDS[arm]})"
        if math.isnan(paired.p):
            says.append(f"{rule} minus {arm} is {paired.mean:+.3f} for every seed, so there is nothing to test by.")
        elif paired.p <= LEVEL:
            direction = "better" if paired.mean > 0 else "worse"
            better_or_worse.append(f"{direction} than {arm} by {abs(paired.mean):.3f}")
        else:
            unclear.append(arm)
    if better_or_worse:
        says.append(f"{rule} is {', and '.join(better_or_worse)}.")
    if unclear:
        says.append(f"No clear difference between {rule} and {', or '.join(unclear)}.")
    seeds = len(pairs[0].by_seed)
    spread = math.sqrt(np.var([paired.by_seed for paired in pairs], axis=1, ddof=1).mean())
    if spread > ROUNDING:
        seen = visible_difference(spread, seeds, len(pairs))
        says.append(f"With {seeds} seeds, a true difference of {seen:.2g} is seen in 8 of 10 comparisons.")
        if seeds >= ENOUGH:
            small = small_difference(values)
            says.append(
                f"About {seeds_to_see(small, spread, len(pairs))} seeds would see one of {small:.2g} as often."
            )
    return " ".join(says)


def small_difference(values: dict[str, Sequence[float]]) -> float:
    """`SMALL` for shares, else a tenth of the range of all values."""
    of_runs = np.array(list(values.values()))
    if of_runs.min() >= 0 and of_runs.max() <= 1:
        return SMALL
    return float(np.ptp(of_runs)) / 10
