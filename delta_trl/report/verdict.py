"""What the numbers of a run say: one sentence for each of [`RULES`], and a warning where its condition holds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from .run import HOW_TO_RECORD, Run
from .text import label, visible
from .tokens import TokenTable


LEAST_VALUES = 6  # logged ones, before a change is judged
ENDS = 3  # values at either end, or a tenth of them if that is more
CLEAR = 3  # standard errors
MOSTLY = 0.8  # a share of the variance
PLAIN = 0.01  # standard deviation of coefficients that hardly differ

UNLIKELY = 0.5
LEAST_TOKENS = 20  # of a kind, on one side
LEAST_EFFECT = 0.02  # distance of coefficients
FALSE_ALARMS = 0.01  # probability that any kind of token is named where coefficients do not depend on tokens
NAMED = 3  # kinds at either end
LIMIT = 2_000  # characters of a sentence


@dataclass
class Sentence:
    """A sentence of the verdict: the rule's name, what the numbers are, and the rule's warning if it applies."""

    name: str
    text: str
    warning: str = ""


@dataclass(frozen=True)
class Rule:
    """
    A rule of the verdict.

    Attributes:
        name (`str`): What it looks at.
        numbers (`Callable`): Of a run and its tokens, the numbers of the sentence; `None` if they are not known.
        sentence (`str`): A format string for the numbers.
        warns (`Callable`, *optional*): Whether the numbers deserve a warning.
        warning (`str`, *optional*): When it warns, in words.
    """

    name: str
    numbers: Callable[[Run, TokenTable], dict[str, Any] | None]
    sentence: str
    warns: Callable[[dict[str, Any]], bool] = lambda numbers: False
    warning: str = ""


def verdict(run: Run, table: TokenTable) -> list[Sentence]:
    """The sentences of all rules whose numbers are known. `table` has the recorded tokens of `run`, perhaps none."""
    found = [(rule, rule.numbers(run, table)) for rule in RULES]
    return [
        Sentence(
            rule.name,
            visible(rule.sentence.format_map(numbers), LIMIT),
            rule.warning if rule.warns(numbers) else "",
        )
        for rule, numbers in found
        if numbers is not None
    ]


@dataclass
class Ends:
    """Means of the first and last `n` of `count` values; `error` is the standard error of such a mean."""

    first: float
    last: float
    n: int
    error: float
    count: int

    @property
    def clear(self) -> float:
        """What two such means must differ by, for the difference to be clear."""
        return CLEAR * math.sqrt(2) * self.error

    @property
    def rises(self) -> int:
        """1 or -1 for a clear change, 0 without."""
        change = self.last - self.first
        return int(np.sign(change)) if abs(change) > self.clear else 0


def ends(values: np.ndarray) -> Ends | None:
    """Means of the first and last values, of which no change is clear if they are few; `None` without any."""
    if not len(values):
        return None
    if len(values) < LEAST_VALUES:
        return Ends(float(values[0]), float(values[-1]), 1, math.inf, len(values))
    n = max(ENDS, len(values) // 10)
    # from differences of neighbours, so that a trend does not count as noise
    error = math.sqrt((np.diff(values) ** 2).mean() / 2 / n)
    return Ends(float(values[:n].mean()), float(values[-n:].mean()), n, error, len(values))


def _reward(run: Run, table: TokenTable) -> dict[str, Any] | None:
    steps, values = run.logged("reward")
    known = ends(values)
    if known is None:
        return None
    running = np.convolve(values, np.ones(known.n) / known.n, "valid")
    peak = int(running.argmax())
    changes = {1: "It rose", -1: "It fell", 0: "No clear change"}
    return {
        **vars(known),
        "change": changes[known.rises] if known.count >= LEAST_VALUES else "Too few values to judge",
        "fell": known.rises < 0 or running[peak] - known.last > known.clear,
        "peak": running[peak],
        "step": steps[peak + known.n // 2],
    }


def _evaluation(run: Run, table: TokenTable) -> dict[str, Any] | None:
    parts = []
    for key, name in run.evaluations.items():
        steps, values = run.logged(key)
        if len(values):
            of = f"{name}: " if name else ""
            best = values.argmax()
            parts.append(f"{of}{values[0]:.3f} → {values[-1]:.3f}, highest {values[best]:.3f} at step {steps[best]}")
    return {"parts": "; ".join(parts)} if parts else None


def _entropy(run: Run, table: TokenTable) -> dict[str, Any] | None:
    known = ends(run.logged("entropy")[1])
    return known and vars(known)


def _cut_off(run: Run, table: TokenTable) -> dict[str, Any] | None:
    known, length = (ends(run.logged(f"completions/{name}")[1]) for name in ("clipped_ratio", "mean_length"))
    return known and length and {"last": 100 * known.last, "length": length}


def _contrast(run: Run, table: TokenTable) -> dict[str, Any] | None:
    known = ends(run.logged("frac_reward_zero_std")[1])
    return known and {"last": 100 * known.last}


def _sides(run: Run, table: TokenTable) -> dict[str, Any] | None:
    if not run.groups:
        return {"text": f"No token credit was recorded. {HOW_TO_RECORD}."}
    total, between, known, means = 0.0, 0.0, 0, []
    for step in np.unique(table.steps):  # within a step: means drift over the run
        here = (table.steps == step) & np.isfinite(table.coefficients)
        won, lost = (table.coefficients[here & (table.sides == side)] for side in (1, -1))
        if len(won) and len(lost):
            means.append((won.mean(), lost.mean()))
            every = np.concatenate([won, lost])
            known += len(every)
            total += ((every - every.mean()) ** 2).sum()
            between += len(won) * len(lost) / len(every) * (won.mean() - lost.mean()) ** 2
    if not means:
        return {"text": "No winner was recorded beside a loser."}
    won, lost = np.mean(means, axis=0)
    if total <= PLAIN**2 * known:
        return {"text": f"Coefficients hardly differ: their standard deviation is {math.sqrt(total / known):.3f}."}
    share = between / total
    if share >= MOSTLY:
        meaning = "it mostly reweights winners against losers, and hardly tells tokens of one side apart"
    elif share <= 1 - MOSTLY:
        meaning = "it mostly tells tokens of one side apart"
    else:
        meaning = "it both reweights winners against losers and tells tokens of one side apart"
    return {
        "text": f"{100 * share:.0f} % of its variance lies between the sides (a winner's token gets {won:.2f} times "
        f"the credit, a loser's {lost:.2f} times the blame): {meaning}."
    }


@dataclass
class Effects:
    """
    How far K kinds of tokens are from the mean of their completion, on average over their tokens; arrays of shape
    (K,).

    If coefficients did not depend on tokens, those of a completion could be exchanged. `errors` is the standard error
    under this, or the one that completions show by differing among themselves, if that is larger: a few kinds of
    tokens may be in few completions, and coefficients may be skewed.
    """

    distances: np.ndarray
    errors: np.ndarray
    counts: np.ndarray


def effects(table: TokenTable, tokens: np.ndarray, kinds: np.ndarray, K: int) -> Effects:
    """
    Args:
        table ([`TokenTable`]): N recorded tokens.
        tokens (`np.ndarray` of shape `(n,)`): Numbers of the tokens to look at, of the N.
        kinds (`np.ndarray` of shape `(n,)`): Their kinds, 0 to K - 1.
        K (`int`): How many kinds there are.
    """
    n_completions = len(table.completions)
    known = np.isfinite(table.within)
    values = np.where(known, table.within, 0.0)
    lengths = np.bincount(table.rows[known], minlength=n_completions)  # (C,)
    variances = np.bincount(table.rows, values**2, n_completions) / np.maximum(lengths - 1, 1)  # (C,)

    tokens, kinds = tokens[known[tokens]], kinds[known[tokens]]
    rows = table.rows[tokens]
    pairs, pair = np.unique(kinds * n_completions + rows, return_inverse=True)  # of a kind and a completion
    kind, row = pairs // max(n_completions, 1), pairs % max(n_completions, 1)
    count = np.bincount(pair, minlength=len(pairs))
    total = np.bincount(pair, values[tokens], len(pairs))

    def of_kinds(numbers: np.ndarray) -> np.ndarray:  # (pairs,) -> (K,)
        return np.bincount(kind, numbers, K)

    counts = of_kinds(count)
    distances = of_kinds(total) / np.maximum(counts, 1)
    # sampling `count` of the completion's coefficients without putting them back
    exchanged = of_kinds(count * variances[row] * (1 - count / lengths[row]))
    n = of_kinds(np.ones(len(pairs)))
    observed = of_kinds((total - count * distances[kind]) ** 2) * n / np.maximum(n - 1, 1)
    return Effects(distances, np.sqrt(np.maximum(exchanged, observed)) / np.maximum(counts, 1), counts)


def _tokens(run: Run, table: TokenTable) -> dict[str, Any] | None:
    """Which kinds of tokens get more or less than the mean of their completion: token types, and two more kinds."""
    if not len(table.rows):
        return None
    types, type_of = np.unique(table.ids, return_inverse=True)
    unlikely, later = len(types), len(types) + 1
    sides = []
    for side in (1, -1):
        (here,) = np.nonzero(table.sides == side)
        rare, late = here[table.probabilities[here] < UNLIKELY], here[table.late[here]]
        kinds = np.concatenate([type_of[here], np.full(len(rare), unlikely), np.full(len(late), later)])
        sides.append(effects(table, np.concatenate([here, rare, late]), kinds, len(types) + 2))
    tests = sum(int((found.counts >= LEAST_TOKENS).sum()) for found in sides)
    if not tests:
        return None
    critical = NormalDist().inv_cdf(1 - FALSE_ALARMS / 2 / tests)

    def name(kind: int) -> str:
        if kind == unlikely:
            return f"a probability under {UNLIKELY:g}"
        if kind == later:
            return "the later half"
        first = int((type_of == kind).argmax())
        return f"“{label(table.completions[table.rows[first]].tokens()[int(table.positions[first]) - 1])}”"

    parts = []
    for found, of in zip(sides, ("credit in winners", "blame in losers"), strict=True):
        clear = (found.counts >= LEAST_TOKENS) & (np.abs(found.distances) >= LEAST_EFFECT)
        clear &= np.abs(found.distances) > critical * found.errors
        order = [kind for kind in np.argsort(-found.distances, kind="stable") if clear[kind]]
        for more, some in (
            ("more", [kind for kind in order if found.distances[kind] > 0]),
            ("less", [kind for kind in reversed(order) if found.distances[kind] < 0]),
        ):
            if some:
                named = ", ".join(f"{name(kind)} ({found.distances[kind]:+.2f})" for kind in some[:NAMED])
                parts.append(f"{more} {of} for {named}")
    if not parts:
        return {"text": f"None of {tests:,} kinds of tokens is clearly above or below the mean of its completion."}
    return {"text": f"Against the mean of their completion, {'; '.join(parts)}."}


RULES = (
    Rule(
        "Reward",
        _reward,
        "{change}: {first:.3f} → {last:.3f} (means of the first and last {n} of {count:,} logged values).",
        lambda x: x["fell"],
        "It fell, or had been higher before.",
    ),
    Rule("Evaluation", _evaluation, "Mean reward {parts}."),
    Rule(
        "Entropy",
        _entropy,
        "{first:.3f} → {last:.3f} nats.",
        lambda x: x["count"] >= LEAST_VALUES and x["first"] > 0 and not 0.25 <= x["last"] / x["first"] <= 3,
        "It is under a quarter of what it was, or over three times as high.",
    ),
    Rule(
        "Length",
        _cut_off,
        "{length.first:,.0f} → {length.last:,.0f} tokens; at the end, {last:.0f} % of completions are cut off.",
        lambda x: x["last"] >= 10,
        "A tenth of completions, or more, are cut off at the length limit.",
    ),
    Rule(
        "Contrast",
        _contrast,
        "At the end, {last:.0f} % of groups have equal rewards and train nothing.",
        lambda x: x["last"] >= 50,
        "It is half of the groups, or more.",
    ),
    Rule("Credit", _sides, "{text}"),
    Rule("Tokens", _tokens, "{text}"),
)

HOW = (
    f"First and last values are means over a tenth of what was logged, {ENDS} values at least. A change is clear from "
    f"{CLEAR} standard errors, estimated from how far neighbouring values are apart. The reward is that of the policy "
    "on the data: with dynamic sampling, that of the first round. Credit and tokens are those of the recorded "
    f"completions. A kind of token is named if its coefficients differ from the mean of their completion by "
    f"{LEAST_EFFECT} or more, and by more than chance allows: if coefficients did not depend on tokens, the "
    f"probability of naming any would be {100 * FALSE_ALARMS:.0f} %."
)
