"""What the numbers of a run say: a sentence for each of `RULES` whose numbers are known, and perhaps a warning."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from .reader import Run
from .text import label


LEAST_VALUES = 6  # logged ones; fewer say nothing
BLOCK = 3  # values in a row that are averaged, or a tenth of all if that is more
LEAST_BLOCKS = 5  # fewer say nothing about their error
CLEAR = 4  # standard errors

UNLIKELY = 0.5
LEAST_TOKENS = 20  # of a kind, on one side
LEAST_EFFECT = 0.02  # distance of coefficients
FALSE_ALARMS = 0.01  # probability that any kind of token is named where coefficients do not depend on tokens
NAMED = 3  # kinds at either end


@dataclass(frozen=True)
class Change:
    """
    How logged values changed: the means of the first and of the last `n`, and the highest mean of a block of `n`. Two
    such means must differ by more than `clear` for the difference to be clear.
    """

    first: float
    last: float
    highest: float
    n: int
    clear: float

    @property
    def direction(self) -> str:
        if abs(self.last - self.first) <= self.clear:
            return "No clear change"
        return "It rose" if self.last > self.first else "It fell"


def change(values: np.ndarray) -> Change | None:
    """The change of values of shape (n,); `None` if they are too few."""
    if len(values) < LEAST_VALUES:
        return None
    n = max(BLOCK, len(values) // 10)
    blocks = values[len(values) % n :].reshape(-1, n).mean(axis=1)
    error = math.inf
    if len(blocks) >= LEAST_BLOCKS:
        # Second differences of independent means have 6 times their variance, and a trend does not count as noise.
        # Means of blocks are nearly independent, also where values are like their neighbours.
        error = math.sqrt((np.diff(blocks, 2) ** 2).mean() / 6)
    return Change(values[:n].mean(), blocks[-1], blocks.max(), n, CLEAR * math.sqrt(2) * error)


@dataclass(frozen=True)
class Sides:
    """Mean coefficients of winners and losers, and the share of the variance within a step that lies between them."""

    won: float
    lost: float
    share: float


def sides(tokens: pd.DataFrame) -> Sides | None:
    """Of the steps that have both sides; `None` if there is none."""
    known = tokens.dropna(subset="coefficient")
    both = known[known.groupby("step").side.transform("nunique") == 2]
    if both.empty:
        return None
    of_step, of_side = (both.groupby(by).coefficient.transform("mean") for by in ("step", ["step", "side"]))
    total = ((both.coefficient - of_step) ** 2).sum()
    won, lost = (both.coefficient[both.side == side].mean() for side in (1, -1))
    return Sides(won, lost, ((of_side - of_step) ** 2).sum() / total if total else 0.0)


def effects(tokens: pd.DataFrame) -> pd.DataFrame:
    """
    How far kinds of tokens are from the mean of their completion, by side: their average `distance`, its `error`, and
    the `count` of tokens. A kind is a text, or the tokens with a probability under `UNLIKELY`. Kinds of fewer than
    `LEAST_TOKENS` tokens are left out.

    The error is the larger of two. The first shifts the tokens of a completion against its coefficients; what passes
    the end comes in again at the beginning. Exchanging single coefficients would take neighbours for independent. The
    second is how much completions differ in their distances, because coefficients may be skewed.
    """
    mean = tokens.groupby("completion").coefficient.transform("mean")
    tokens = tokens.assign(
        kind=tokens.text.map({text: f"“{label(text)}”" for text in tokens.text.unique()}),
        distance=tokens.coefficient - mean,
    ).dropna(subset="distance")
    tokens["place"] = tokens.groupby("completion").cumcount()
    unlikely = tokens[tokens.log_prob < math.log(UNLIKELY)].assign(kind=f"a probability under {UNLIKELY}")
    by_kind = ["side", "kind"]
    of_kinds = pd.concat([tokens, unlikely])
    of_kinds = of_kinds[of_kinds.groupby(by_kind).place.transform("size") >= LEAST_TOKENS]
    distances = {number: group.to_numpy() for number, group in tokens.groupby("completion").distance}
    variances = {
        number: shifted_variances(distances[number], group.place, group.kind)
        for number, group in of_kinds.groupby("completion")
    }
    shifted = pd.concat(variances or {0: pd.Series(dtype=float)}, names=["completion", "kind"])
    pairs = of_kinds.groupby([*by_kind, "completion"])  # of a kind and a completion
    totals = pairs.agg(count=("distance", "size"), total=("distance", "sum"))
    totals = totals.join(shifted.rename("shifted"))
    kinds = totals.groupby(by_kind).sum()
    kinds["distance"] = kinds["total"] / kinds["count"]
    expected = totals["count"] * kinds["distance"]  # by side and kind
    n = totals.groupby(by_kind).size()
    observed = ((totals["total"] - expected) ** 2).groupby(by_kind).sum() * n / (n - 1).clip(lower=1)
    kinds["error"] = np.sqrt(np.maximum(kinds["shifted"], observed)) / kinds["count"]
    return kinds[["distance", "error", "count"]]


def shifted_variances(distances: np.ndarray, places: pd.Series, kinds: pd.Series) -> pd.Series:
    """
    For each kind in a completion of T tokens: the variance of the sum of `distances` (T,), whose mean is 0, at its
    places, if these were shifted by 0 to T - 1 tokens.
    """
    rows, names = pd.factorize(kinds)
    marks = np.zeros((len(names), len(distances)))
    marks[rows, places] = 1
    transformed = np.fft.rfft(distances) * np.fft.rfft(marks).conj()
    sums = np.fft.irfft(transformed, len(distances))
    return pd.Series((sums**2).mean(axis=1), index=names)


def named_effects(tokens: pd.DataFrame) -> str | None:
    """Which kinds of tokens get clearly more or less than the mean of their completion; `None` if none does."""
    found = effects(tokens)
    critical = NormalDist().inv_cdf(1 - FALSE_ALARMS / 2 / max(1, len(found)))
    size = found.distance.abs()
    found = found[(size >= LEAST_EFFECT) & (size > critical * found.error)].sort_values("distance")
    parts = []
    for side, what in ((1, "credit in winners"), (-1, "blame in losers")):
        ranked = [(kind, distance) for (of, kind), distance in found.distance.items() if of == side]
        less, more = ([one for one in ranked if sign * one[1] > 0] for sign in (-1, 1))
        for word, some in (("more", more[::-1]), ("less", less)):
            if some:
                parts.append(f"{word} {what} for {', '.join(f'{kind} ({d:+.2f})' for kind, d in some[:NAMED])}")
    return "; ".join(parts) or None


@dataclass(frozen=True)
class Rule:
    """
    A rule of the verdict.

    Attributes:
        name (`str`): What it looks at.
        numbers (`Callable`): Of a run, the numbers of the sentence; `None` if they are not known.
        sentence (`str`): A format string for the numbers.
        warns (`Callable`, *optional*): Whether the numbers deserve a warning.
        warning (`str`, *optional*): The warning.
    """

    name: str
    numbers: Callable[[Run], Any]
    sentence: str
    warns: Callable[[Any], bool] = lambda x: False
    warning: str = ""


RULES = (
    Rule(
        "Reward",
        lambda run: change(run.logged("reward")[1]),
        "{0.direction}: {0.first:.3f} → {0.last:.3f} (means of the first and last {0.n} logged values).",
        lambda x: x.highest - x.last > x.clear,
        "It has been clearly higher.",
    ),
    Rule(
        "Entropy",
        lambda run: change(run.logged("entropy")[1]),
        "{0.first:.3f} → {0.last:.3f} nats.",
        lambda x: not x.first / 4 <= x.last <= 3 * x.first,
        "It is under a quarter of what it was, or over three times as high.",
    ),
    Rule(
        "Cut off",
        lambda run: change(run.logged("completions/clipped_ratio")[1]),
        "At the end, {0.last:.0%} of completions reach the length limit.",
        lambda x: x.last >= 0.1,
        "It is a tenth of them, or more.",
    ),
    Rule(
        "Contrast",
        lambda run: change(run.logged("frac_reward_zero_std")[1]),
        "At the end, {0.last:.0%} of sampled groups train nothing: no token has an advantage.",
        lambda x: x.last >= 0.5,
        "It is half of them, or more.",
    ),
    Rule(
        "Credit",
        lambda run: sides(run.tokens),
        "On average {0.won:.3f} in winners and {0.lost:.3f} in losers; {0.share:.0%} of the variance is between them.",
        lambda x: x.share >= 0.8,
        "It mostly reweights one side against the other, and hardly tells tokens of one side apart.",
    ),
    Rule("Tokens", lambda run: named_effects(run.tokens), "Against the mean of their completion, {0}."),
)


def verdict(run: Run) -> list[tuple[str, str, str]]:
    """Name, sentence and warning (perhaps empty) of every rule whose numbers are known."""
    found = [(rule, rule.numbers(run)) for rule in RULES]
    return [
        (rule.name, rule.sentence.format(numbers), rule.warning if rule.warns(numbers) else "")
        for rule, numbers in found
        if numbers is not None
    ]
