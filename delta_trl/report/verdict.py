"""Sentences about a run, made from its numbers; `HOW` describes the thresholds."""

import math
from dataclasses import dataclass

import numpy as np

from .run import Run, TokenTypeTable
from .text import label
from .tokens import TokenTable


LEAST = 6  # logged values for a sentence about their change
ENDS = 3  # values at either end, or a tenth of them if that is more
CLEAR = 3  # standard errors
MOSTLY = 0.8  # a share of the variance
PLAIN = 0.01  # standard deviation of coefficients that hardly differ
OFF_SIDE, NAMED_TYPES = 0.02, 3  # distance of coefficients; types named at each end
UNLIKELY = 0.5
LEAST_TOKENS = 20
COLLAPSE, BLOW_UP = 0.25, 3.0  # the last entropy over the first
LENGTH = 2.0
CUT_OFF, NO_CONTRAST, CLIPPED, NEUTRAL = 0.1, 0.5, 0.1, 0.25
NORM = 10.0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


HOW = (
    f"The first and the last values are means over a tenth of what was logged at either end, {ENDS} values at least; "
    f"with fewer than {LEAST} nothing is said about a change. It is clear where it is more than {CLEAR} times its "
    "standard error, estimated from how far neighbouring values are apart. Warnings: an entropy under "
    f"{_percent(COLLAPSE)} of what it was, or over {BLOW_UP:g} times as high; completions that became {LENGTH:g} times"
    f" as long, or as short; at the end, {_percent(CUT_OFF)} of completions cut off, or {_percent(NO_CONTRAST)} of "
    f"groups without contrast; over the run, {_percent(CLIPPED)} of tokens clipped, or {_percent(NEUTRAL)} of rollout "
    f"batches with nothing to credit; a gradient norm over {NORM:g} times its median; a value that is not finite. "
    f"Credit counts as a reweighting of the sides from {_percent(MOSTLY)} of its variance, as telling tokens apart up "
    f"to {_percent(1 - MOSTLY)}. What stands out differs by {OFF_SIDE:g} or more from what it is compared with; where "
    f"tokens are compared, also by {CLEAR} standard errors, with {LEAST_TOKENS} recorded ones of either kind. The "
    "reward is that of the policy on the data: with dynamic sampling, that of the first round."
)


@dataclass
class Sentence:
    """A sentence of the verdict, whether it is a warning, and the title of the plot that shows it."""

    text: str
    warning: bool = False
    plot: str | None = None


def verdict(run: Run, table: TokenTable, min_count: int) -> list[Sentence]:
    """
    Sentences about a run.

    Args:
        run ([`Run`]): The run.
        table ([`TokenTable`]): Its recorded tokens, perhaps none.
        min_count (`int`): How often a token type must occur to be named.
    """
    return [
        *_reward(run),
        *(sentence for key, measure in run.evaluations.items() for sentence in _evaluation(run, key, measure)),
        *_health(run),
        *_sampling(run),
        *_between_sides(run, table),
        *_relations(table),
        *_types(run.token_types, min_count),
    ]


@dataclass
class Ends:
    """Means of the first and last `n` of some values; `error` is the standard error of such a mean."""

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
    """Means of the first and last values; `None` for fewer than `LEAST`."""
    if len(values) < LEAST:
        return None
    n = max(ENDS, len(values) // 10)
    # from differences of neighbours, so that a trend does not count as noise
    error = math.sqrt((np.diff(values) ** 2).mean() / 2 / n)
    return Ends(float(values[:n].mean()), float(values[-n:].mean()), n, error, len(values))


def _reward(run: Run) -> list[Sentence]:
    steps, values = run.logged("reward")
    if not len(values):
        return [Sentence("No training log is here, so there is no verdict on training.")]
    known = ends(values)
    if known is None:
        went = f"{values[0]:.3f}" if len(values) == 1 else f"{values[0]:.3f} to {values[-1]:.3f}"
        count = "One value" if len(values) == 1 else f"{len(values)} values"
        text = f"{count} of the reward, {went}: too little for a verdict on training."
        return [Sentence(text, plot="Reward")]
    means = f"means of the first and last {known.n} of {known.count:,} logged values"
    if known.rises:
        verb = "rose" if known.rises > 0 else "fell"
        text = f"The reward {verb} from {known.first:.3f} to {known.last:.3f} ({means})."
    else:
        text = f"The reward shows no clear change: {known.first:.3f} and {known.last:.3f} ({means})."
    found = [Sentence(text, known.rises < 0, "Reward")]
    running = np.convolve(values, np.ones(known.n) / known.n, "valid")
    peak = int(running.argmax())
    if not known.rises < 0 and running[peak] - known.last > known.clear:
        text = f"It had been higher: {running[peak]:.3f} around step {steps[peak + known.n // 2]}."
        found.append(Sentence(text, True, "Reward"))
    return found


def _evaluation(run: Run, key: str, measure: str) -> list[Sentence]:
    if sampling := run.sampling():
        measure += f" ({sampling})"
    steps, values = run.logged(key)
    if not len(values):
        return []
    if len(values) == 1:
        return [Sentence(f"In evaluation {measure} was {values[0]:.3f}, at step {steps[0]}.", plot="Reward")]
    best = int(values.argmax())
    highest = "" if best == len(values) - 1 else f"; the highest was {values[best]:.3f} at step {steps[best]}"
    text = f"In evaluation {measure} was {values[0]:.3f} at step {steps[0]} and {values[-1]:.3f} at step {steps[-1]}"
    text += f"{highest}."
    return [Sentence(text, plot="Reward")]


def _between_sides(run: Run, table: TokenTable) -> list[Sentence]:
    _, shares = run.logged("credit/between_sides_variance")
    _, spreads = run.logged("credit/coefficient_std")
    means = [run.logged(f"credit/coefficient_mean_{side}")[1] for side in ("positive", "negative")]
    plot = "Variance between the sides"
    if len(shares) and len(spreads) and all(map(len, means)):
        share, spread, (won, lost) = shares.mean(), spreads.mean(), (m.mean() for m in means)
        over = f"mean of {len(shares):,} logged values"
    else:  # no log, or not of this
        known = np.isfinite(table.coefficients)
        values, sides = table.coefficients[known].astype(float), table.sides[known]
        if not ((sides > 0).any() and (sides < 0).any()):
            return []
        won, lost = values[sides > 0].mean(), values[sides < 0].mean()
        total = values.var()
        share = np.where(sides > 0, won, lost).var() / total if total else math.nan
        spread, over, plot = math.sqrt(total), "of the recorded tokens", None
    if spread < PLAIN:
        text = f"Token credit changes little: the coefficients' standard deviation is {spread:.3f} ({over})."
        return [Sentence(text, plot=plot and "Coefficient spread")]
    if share >= MOSTLY:
        meaning = "it is mostly a reweighting of winners against losers, and hardly tells tokens of one side apart"
    elif 1 - share >= MOSTLY:
        meaning = "it mostly tells tokens of one side apart"
    else:
        meaning = "it both reweights winners against losers and tells tokens of one side apart"
    text = (
        f"{_percent(share)} of the credit's variance lies between the sides ({over}; a winner's token gets {won:.2f} "
        f"times the credit, a loser's {lost:.2f} times the blame): {meaning}."
    )
    return [Sentence(text, plot=plot)]


def _relations(table: TokenTable) -> list[Sentence]:
    """Which kinds of tokens get more or less credit, or blame, than others: differences of means."""
    whose = []
    for tokens, chosen, values in (
        (
            f"tokens with a probability under {UNLIKELY:g} get, against the rest of their side,",
            np.where(np.isfinite(table.probabilities), table.probabilities < UNLIKELY, np.nan),
            table.relative,
        ),
        ("tokens in the later half of their completion get, against its first,", table.late, table.within),
    ):
        found = []
        for side, name in ((1, "credit in winners"), (-1, "blame in losers")):
            known = (table.sides == side) & np.isfinite(chosen) & np.isfinite(values)
            difference = _difference(values[known & (chosen == 1)], values[known & (chosen == 0)])
            if difference is not None:
                found.append(f"{abs(difference):.2f} {'more' if difference > 0 else 'less'} {name}")
        if found:
            whose.append(f"{tokens} {' and '.join(found)}")
    return [Sentence(f"What stands out: {'; '.join(whose)}.")] if whose else []


def _difference(some: np.ndarray, others: np.ndarray) -> float | None:
    """The difference of the means; `None` if it is small or not clear."""
    if min(len(some), len(others)) < LEAST_TOKENS:
        return None
    some, others = some.astype(np.float64), others.astype(np.float64)
    difference = float(some.mean() - others.mean())
    error = math.sqrt(some.var() / len(some) + others.var() / len(others))
    return difference if abs(difference) >= max(OFF_SIDE, CLEAR * error) else None


def _types(types: TokenTypeTable | None, min_count: int) -> list[Sentence]:
    if types is None:
        return []
    distances = types.off_side()
    frequent = [i for i in np.argsort(-distances) if types.counts[i].sum() >= max(min_count, 1)]
    if not frequent:
        return []
    high = [i for i in frequent if distances[i] >= OFF_SIDE][:NAMED_TYPES]
    low = [i for i in reversed(frequent) if distances[i] <= -OFF_SIDE][:NAMED_TYPES]
    if not high and not low:
        text = f"No token type is {OFF_SIDE} or more from the mean of its side, of those sampled {min_count} times."
        return [Sentence(text)]
    named = [
        f"{more} for " + ", ".join(f"“{label(types.tokens[i])}” ({distances[i]:+.2f})" for i in some)
        for more, some in (("more", high), ("less", low))
        if some
    ]
    return [Sentence(f"Against the mean of their side, {'; '.join(named)}.")]


def _health(run: Run) -> list[Sentence]:
    """Warnings, and a sentence that lists what needs none."""
    found, fine = [], []

    def check(name: str, plot: str, values: np.ndarray, text: str | None) -> None:
        if text:
            found.append(Sentence(text, True, plot))
        elif len(values):
            fine.append(name)

    _, values = run.logged("entropy")
    known, text = ends(values), None
    if known and known.first > 0 and not COLLAPSE <= known.last / known.first <= BLOW_UP:
        verb = "collapsed" if known.last < known.first else "blew up"
        text = f"The entropy {verb}, from {known.first:.3f} to {known.last:.3f} nats."
    check("entropy", "Entropy", values if known else [], text)

    _, values = run.logged("completions/mean_length")
    known, text = ends(values), None
    if known and known.first > 0 and not 1 / LENGTH <= known.last / known.first <= LENGTH:
        verb = "shrank" if known.last < known.first else "grew"
        text = f"Completions {verb} from {known.first:,.0f} to {known.last:,.0f} tokens."
    check("completion length", "Completion length", values if known else [], text)

    last = _last(run, "completions/clipped_ratio")
    text = None
    if last >= CUT_OFF:
        text = f"At the end, {_percent(last)} of completions are cut off at the length limit."
    check("cut-off completions", "Cut-off completions", [] if math.isnan(last) else [last], text)

    last = _last(run, "frac_reward_zero_std")
    text = None
    if last >= NO_CONTRAST:
        text = f"At the end, {_percent(last)} of groups have equal rewards and train nothing."
    check("groups without contrast", "Groups without contrast", [] if math.isnan(last) else [last], text)

    ratios = [run.logged(f"clip_ratio/{end}_mean")[1] for end in ("low", "high")]
    clipped = sum(values.mean() for values in ratios if len(values))
    text = f"The clip range stops {_percent(clipped)} of all tokens' updates." if clipped >= CLIPPED else None
    check("clip ratios", "Clip ratios", ratios[0], text)

    _, values = run.logged("credit/neutral")
    if len(values) and values.mean() >= NEUTRAL:
        text = (
            f"In {_percent(values.mean())} of rollout batches there was nothing to credit: no winners beside losers."
        )
        found.append(Sentence(text, True))

    steps, values = run.logged("grad_norm")
    text = None
    if len(values) >= LEAST and values.max() > NORM * np.median(values) > 0:
        text = f"The gradient norm reached {values.max():.3g} at step {steps[values.argmax()]}, "
        text += f"{values.max() / np.median(values):.0f} times its median."
    check("gradient norm", "Gradient norm", values if len(values) >= LEAST else [], text)

    for key in ("loss", "reward", "grad_norm"):
        logged = [(entry["step"], entry[key]) for entry in run.history if isinstance(entry.get(key), float)]
        steps = [step for step, value in logged if not math.isfinite(value)]
        if steps:
            count = "one logged step" if len(steps) == 1 else f"{len(steps):,} logged steps"
            found.append(Sentence(f"{key} was not finite at {count}, first at step {steps[0]}.", True))
    if fine:
        found.append(Sentence(f"{'Otherwise n' if found else 'N'}othing to warn of in {_listed(fine)}."))
    return found


def _sampling(run: Run) -> list[Sentence]:
    names = ("no_contrast_before", "no_contrast", "tokens_per_trained_token", "reward_before")
    logged = [run.logged(f"dynamic_sampling/{name}")[1] for name in names]
    if not all(map(len, logged)):
        return []
    before, after, tokens, reward = (values.mean() for values in logged)
    text = (
        f"Dynamic sampling left {_percent(after)} of groups without contrast instead of {_percent(before)}, for "
        f"{tokens:.2f} generated tokens per trained one; before it, the mean reward was {reward:.3f} (means of "
        f"{len(logged[0]):,} logged values)."
    )
    return [Sentence(text, plot="Groups without contrast")]


def _last(run: Run, key: str) -> float:
    """Mean of the last values; NaN without any."""
    _, values = run.logged(key)
    return float(values[-max(ENDS, len(values) // 10) :].mean()) if len(values) else math.nan


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def compared(runs: list[Run], names: list[str]) -> list[Sentence]:
    """Sentences that compare two runs, up to the last step that both have logged."""
    if len(runs) != 2:
        return []
    rewards = [(run.settings or {}).get("rewards") for run in runs]
    if None not in rewards and rewards[0] != rewards[1]:
        return [Sentence("The runs have different rewards, or weights of them: their values are not compared.")]
    curves = [run.logged("reward") for run in runs]
    last = min((steps[-1] if len(steps) else 0) for steps, _ in curves)
    both = [ends(values[steps <= last]) for steps, values in curves]
    a, b = both
    if a is None or b is None:
        return []
    difference = b.last - a.last
    values = f"{names[0]} {a.last:.3f}, {names[1]} {b.last:.3f}"
    at = "in the end" if all(steps[-1] == last for steps, _ in curves) else f"at step {last:,}, where one run ends"
    if abs(difference) <= CLEAR * math.hypot(a.error, b.error):
        text = f"The rewards are too close to tell apart {at}: {values}."
    else:
        higher = names[int(difference > 0)]
        text = f"The reward of {higher} is higher {at}: {values}. "
        text += "These are single runs: another seed may reverse this."
    return [Sentence(text, plot="Reward")]
