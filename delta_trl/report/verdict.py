"""
What the numbers of a run say: a sentence for each of `JUDGEMENTS` whose numbers are known, and perhaps a warning.

Values of one run are neither independent nor many. So the sentences give numbers and the size of what was lost, and
test nothing, but for kinds of tokens: these are many, and their null distribution is known.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from .reader import Run
from .text import label


LEAST_VALUES = 6  # logged ones; fewer say nothing
LEAST_MEAN = 3  # values of a mean, or a tenth of all if that is more

UNLIKELY = 0.5
LEAST_TOKENS = 20  # of a kind, on one side
LEAST_EFFECT = 0.02  # distance of coefficients
FALSE_ALARMS = 0.01  # probability that any kind of token is named where coefficients do not depend on tokens
SHIFTS = 200
NAMED = 3  # kinds of a phrase
OF_SIDES = ("coefficient_mean_positive", "coefficient_mean_negative", "between_sides_variance")  # logged
PHRASES = {  # by side, and by the sign of the distance
    (1, 1): "more credit in winners",
    (1, -1): "less credit in winners",
    (-1, 1): "more blame in losers",
    (-1, -1): "less blame in losers",
}


@dataclass(frozen=True)
class Course:
    """
    The course of logged values: the means of the first n, of the best n in a row and of the last n, each with the step
    in its middle; and the standard deviation of all.
    """

    first: tuple[int, float]
    best: tuple[int, float]
    last: tuple[int, float]
    n: int
    deviation: float

    @property
    def in_words(self) -> str:
        points = dict([self.first, self.best, self.last])
        return " → ".join(f"{mean:.3f} at step {step}" for step, mean in points.items())

    @property
    def is_lost(self) -> bool:
        """
        Whether more than half of what was won is lost again. So that noise and small waves are no loss, this must be a
        quarter of the best mean, and one and a half standard deviations.
        """
        best = self.best[1]
        won = best - self.first[1]
        lost = best - self.last[1]
        return lost > max(won / 2, abs(best) / 4, 1.5 * self.deviation)


def course(values: pd.Series, n: int) -> Course:
    """The course of values, n of them or more, by step."""
    means = values.rolling(n, center=True).mean().dropna()
    points = list(means.items())
    return Course(points[0], (means.idxmax(), means.max()), points[-1], n, values.std(ddof=0))


def of_training(run: Run, key: str) -> Course | None:
    """The course of what was logged in training; `None` if the values are too few."""
    values = run.logged(key)
    if len(values) < LEAST_VALUES:
        return None
    return course(values, max(LEAST_MEAN, len(values) // 10))


def mismatches(run: Run) -> pd.Series | None:
    """The `mean` and `max` of the share of completions that `given` could not use; `None` if it is 0 everywhere."""
    shares = run.logged("credit/mismatched_completions")
    return shares.agg(["mean", "max"]) if shares.any() else None


@dataclass(frozen=True)
class Sides:
    """
    Of winners' and losers' mean coefficients, and of the share of the variance that lies between the sides: the `mean`
    over what was logged, `min` and `max`.
    """

    won: pd.Series
    lost: pd.Series
    share: pd.Series


def sides(run: Run) -> Sides | None:
    """Of whole rollout batches, those with both sides; `None` if there is none."""
    logged = pd.DataFrame({name: run.logged(f"credit/{name}") for name in OF_SIDES}).dropna()
    if logged.empty:
        return None
    over_run = logged.agg(["mean", "min", "max"])
    return Sides(*(over_run[name] for name in OF_SIDES))


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
    of_completions = [of_one.to_numpy() for _, of_one in distances]

    def sums(shares: np.ndarray) -> pd.Series:
        """The sums of all kinds if each completion's coefficients were shifted by such a share of its length."""
        shifted = [np.empty(0)]
        for coefficients, share in zip(of_completions, shares, strict=True):
            places = int(share * len(coefficients))
            shifted.append(np.roll(coefficients, -places))
        of_members = np.concatenate(shifted)[members.index]
        return np.bincount(number, of_members, len(count)) / root

    rng = np.random.default_rng(0)
    largest = []
    for _ in range(SHIFTS):
        shares = rng.random(len(of_completions))
        largest.append(sums(shares)[is_common].abs().max())
    unshifted = sums(np.zeros(len(of_completions)))
    is_clear = unshifted.abs() > np.quantile(largest, 1 - FALSE_ALARMS)
    kinds = pd.DataFrame({"distance": unshifted / root, "is_clear": is_clear})
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
        for effect in chosen.head(NAMED).itertuples():
            listed.append(f"{effect.kind} ({effect.distance:+.2f})")
        if listed:
            parts.append(f"{phrase} for {', '.join(listed)}")
    return "; ".join(parts) or None


@dataclass(frozen=True)
class Judgement:
    """
    A line of the verdict.

    Attributes:
        name (`str`): What it looks at.
        numbers (`Callable`): Of a run, the numbers of the sentence; `None` if they are not known.
        sentence (`str`): A format string for the numbers.
        warns (`Callable`, *optional*): Whether the numbers deserve a warning.
        warning (`str`, *optional*): The warning, a format string, too.
    """

    name: str
    numbers: Callable[[Run], Any]
    sentence: str
    warns: Callable[[Any], bool] = lambda x: False
    warning: str = ""


WAS_BETTER = "It was {0.best[1]:.3f} at step {0.best[0]}."
JUDGEMENTS = (
    Judgement(
        "Reward",
        partial(of_training, key="reward"),
        "In training, {0.in_words} (means of {0.n} logged values).",
        attrgetter("is_lost"),
        WAS_BETTER,
    ),
    Judgement(
        "Entropy",
        partial(of_training, key="entropy"),
        "{0.first[1]:.3f} → {0.last[1]:.3f} nats.",
        lambda x: not x.first[1] / 4 <= x.last[1] <= 3 * x.first[1],
        "It is under a quarter of what it was, or over three times as high.",
    ),
    Judgement(
        "Cut off",
        partial(of_training, key="completions/clipped_ratio"),
        "At the end, {0.last[1]:.0%} of completions reach the length limit.",
        lambda x: x.last[1] >= 0.1,
        "It is a tenth of them, or more.",
    ),
    Judgement(
        "Contrast",
        partial(of_training, key="frac_reward_zero_std"),
        "At the end, {0.last[1]:.0%} of sampled groups train nothing: no token has an advantage.",
        lambda x: x.last[1] >= 0.5,
        "It is half of them, or more.",
    ),
    Judgement(
        "Mismatch",
        mismatches,
        "For {0[mean]:.1%} of completions (at most {0[max]:.1%} in a step), the source gave more or fewer values "
        "than they have turns or tokens. They trained with their outcome alone.",
        lambda x: x["mean"] >= 0.1,
        "It is a tenth of them, or more.",
    ),
    Judgement(
        "Credit",
        sides,
        "Mean of a step: winners {0.won[mean]:.2f} ({0.won[min]:.2f} to {0.won[max]:.2f}), losers {0.lost[mean]:.2f} "
        "({0.lost[min]:.2f} to {0.lost[max]:.2f}). Of a step's variance, {0.share[mean]:.0%} ({0.share[min]:.0%} to "
        "{0.share[max]:.0%}) lies between the sides.",
        lambda x: x.share["mean"] >= 0.8,
        "It mostly reweights one side against the other, and hardly tells tokens of one side apart.",
    ),
    Judgement("Tokens", lambda run: named_effects(run.tokens), "Against the mean of their completion, {0}."),
)


def of_evaluation(run: Run, key: str) -> Course | None:
    """The course of a reward in evaluation; `None` without values."""
    values = run.logged(key)
    return course(values, 1) if len(values) else None


def verdict(run: Run) -> list[tuple[str, str, str]]:
    """Name, sentence and warning (perhaps empty) of every line whose numbers are known; evaluations come first."""
    judgements = []
    for key, name in run.evaluations.items():
        title = f"Evaluation on {name}" if name else "Evaluation"
        numbers = partial(of_evaluation, key=key)
        judgements.append(Judgement(title, numbers, "{0.in_words}.", attrgetter("is_lost"), WAS_BETTER))
    lines = []
    for judgement in (*judgements, *JUDGEMENTS):
        numbers = judgement.numbers(run)
        if numbers is not None:
            warning = judgement.warning.format(numbers) if judgement.warns(numbers) else ""
            lines.append((judgement.name, judgement.sentence.format(numbers), warning))
    return lines
