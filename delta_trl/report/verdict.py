"""What the numbers of a run say: a sentence for each of `RULES` whose numbers are known, and perhaps a warning."""

import math
from collections.abc import Callable
from dataclasses import dataclass
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
SHIFTS = 200
NAMED = 3  # kinds of a phrase
PHRASES = {  # by side, and by the sign of the distance
    (1, 1): "more credit in winners",
    (1, -1): "less credit in winners",
    (-1, 1): "more blame in losers",
    (-1, -1): "less blame in losers",
}


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


def change(logged: pd.Series) -> Change | None:
    """The change of logged values (n,); `None` if they are too few."""
    values = logged.to_numpy()
    if len(values) < LEAST_VALUES:
        return None
    n = max(BLOCK, len(values) // 10)
    whole = values[len(values) % n :]
    blocks = whole.reshape(-1, n).mean(axis=1)
    clear = math.inf
    if len(blocks) >= LEAST_BLOCKS:
        # Second differences of independent means have 6 times their variance, and a trend does not count as noise. The
        # difference of two means has twice their variance.
        # Means of blocks are nearly independent, also where values are like their neighbours.
        differences = np.diff(blocks, 2)
        clear = CLEAR * math.sqrt((differences**2).mean() / 3)
    return Change(values[:n].mean(), blocks[-1], blocks.max(), n, clear)


@dataclass(frozen=True)
class Sides:
    """Mean coefficients of winners and losers, and the share of the variance within a step that lies between them."""

    won: float
    lost: float
    share: float


def sides(tokens: pd.DataFrame) -> Sides | None:
    """Of the steps that have both sides; `None` if there is none."""
    both = tokens[tokens.groupby("step").side.transform("nunique") == 2]
    if both.empty:
        return None
    mean = both.groupby("side").coefficient.mean()
    of_step = both.groupby("step").coefficient.transform("mean")
    of_side = both.groupby(["step", "side"]).coefficient.transform("mean")
    total = ((both.coefficient - of_step) ** 2).sum()
    between = ((of_side - of_step) ** 2).sum()
    share = between / total if total else 0.0
    return Sides(mean[1], mean[-1], share)


def effects(tokens: pd.DataFrame) -> pd.DataFrame:
    """
    For each `side` and `kind` of tokens: their mean `distance` from the mean of their completion, and whether it
    `is_clear`. A kind is a text, or the tokens with a probability under `UNLIKELY`. Kinds of fewer than `LEAST_TOKENS`
    tokens are left out.

    A sum of distances is measured in square roots of the number of its tokens. It is clear if it is larger than the
    largest of all kinds would be, but for a share `FALSE_ALARMS`, with the coefficients of each completion shifted by
    a random number of tokens. What passes the end comes in again at the beginning. Exchanging single coefficients
    would take neighbours for independent.
    """
    of_texts = tokens[["side"]].assign(kind="“" + tokens.text.map(label) + "”")
    unlikely = of_texts[tokens.log_prob < math.log(UNLIKELY)].assign(kind=f"a probability under {UNLIKELY}")
    members = pd.concat([of_texts, unlikely])  # a row for each token of a kind; its index is the token's
    by_kind = members.groupby(["side", "kind"])
    number = by_kind.ngroup()
    count = by_kind.size()
    root = np.sqrt(count)
    is_common = count >= LEAST_TOKENS

    mean = tokens.groupby("completion").coefficient.transform("mean")
    distances = (tokens.coefficient - mean).groupby(tokens.completion)
    of_completions = [own.to_numpy() for _, own in distances]

    def sums(shares: np.ndarray) -> pd.Series:
        """The sums of all kinds if each completion's coefficients were shifted by such a share of its length."""
        shifted = [np.empty(0)]
        for own, share in zip(of_completions, shares, strict=True):
            places = int(share * len(own))
            shifted.append(np.roll(own, -places))
        of_members = np.concatenate(shifted)[members.index]
        return np.bincount(number, of_members, len(count)) / root

    rng = np.random.default_rng(0)
    largest = []
    for _ in range(SHIFTS):
        shares = rng.random(len(of_completions))
        largest.append(sums(shares)[is_common].abs().max())
    found = sums(np.zeros(len(of_completions)))
    is_clear = found.abs() > np.quantile(largest, 1 - FALSE_ALARMS)
    kinds = pd.DataFrame({"distance": found / root, "is_clear": is_clear})
    return kinds[is_common].reset_index()


def named_effects(tokens: pd.DataFrame) -> str | None:
    """Which kinds of tokens get clearly more or less than the mean of their completion; `None` if none does."""
    kinds = effects(tokens)
    is_large = kinds.distance.abs() >= LEAST_EFFECT
    named = kinds[kinds.is_clear & is_large].sort_values("distance", key=abs, ascending=False)
    parts = []
    for (side, sign), phrase in PHRASES.items():
        chosen = named[(named.side == side) & (np.sign(named.distance) == sign)]
        listed = []
        for one in chosen.head(NAMED).itertuples():
            listed.append(f"{one.kind} ({one.distance:+.2f})")
        if listed:
            parts.append(f"{phrase} for {', '.join(listed)}")
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
        lambda run: change(run.logged("reward")),
        "{0.direction}: {0.first:.3f} → {0.last:.3f} (means of the first and last {0.n} logged values).",
        lambda x: x.highest - x.last > x.clear,
        "It has been clearly higher.",
    ),
    Rule(
        "Entropy",
        lambda run: change(run.logged("entropy")),
        "{0.first:.3f} → {0.last:.3f} nats.",
        lambda x: not x.first / 4 <= x.last <= 3 * x.first,
        "It is under a quarter of what it was, or over three times as high.",
    ),
    Rule(
        "Cut off",
        lambda run: change(run.logged("completions/clipped_ratio")),
        "At the end, {0.last:.0%} of completions reach the length limit.",
        lambda x: x.last >= 0.1,
        "It is a tenth of them, or more.",
    ),
    Rule(
        "Contrast",
        lambda run: change(run.logged("frac_reward_zero_std")),
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
    sentences = []
    for rule in RULES:
        numbers = rule.numbers(run)
        if numbers is not None:
            warning = rule.warning if rule.warns(numbers) else ""
            sentences.append((rule.name, rule.sentence.format(numbers), warning))
    return sentences
