"""The map of the best weight of losers, by the rules of docs/weights_plan.md: for study.py."""

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import matplotlib
import numpy as np

from .answers import difference
from .plans import BASELINE, FRESH_SUFFIX, WEIGHTS_OF, Study
from .report import table, without_nan
from .statistics import compare_pairs, curve_mean, finished_runs


matplotlib.use("Agg")
import matplotlib.pyplot as plt


TAUGHT, OWN = "taught", "own"  # errors of the teacher, or the model's own
KINDS = {"own_errors": OWN, "own_fewer": OWN, "own_more": OWN}
# With four steps per rollout batch, what the formula is made of
FITTED = ("sparse", "taught_more", "own_fewer", "own_more")
BASE = 5.0  # weights are compared by their logarithm to this base
RESAMPLES = 2000
HOW_TO_READ = """\
Written by `python -m scripts.studies.study --study weights --report` from `scripts/studies/results/{name}.jsonl`.
Tasks, weights, formula and what is concluded are those of [the plan](../docs/weights_plan.md).

Differences are in held-out accuracy after training, from DAPO, paired by seed, ± 95 % (Student's t). The best weight
is where a parabola over the weights' logarithms is highest, within the weights that were tried; in brackets its 95 %
interval, bootstrapped over seeds. Winners weigh 1. "Share of mass": the losers' part of the gradient's mass, Σ |A|
over tokens, at the best weight w: w / (1 + w), since advantages that are normalised by group have equal masses on
both sides. Rewards of 1 and -1 without normalisation are the weight (1 - p) / p.
"""


@dataclass
class Spot:
    """
    A place on the map.

    Args:
        task (`str`): The task.
        fresh (`bool`): One optimiser step per rollout batch, not four.
        rate (`float`): The pass rate before training.
        tokens (`float`): Mean length of the first completions.
        values (`np.ndarray` of shape `(seeds, weights)`): Accuracy after training.
    """

    task: str
    fresh: bool
    rate: float
    tokens: float
    values: np.ndarray

    @property
    def name(self) -> str:
        return f"{self.task}, {'1 step' if self.fresh else '4 steps'}"

    @property
    def kind(self) -> str:
        return KINDS.get(self.task, TAUGHT)

    @cached_property
    def top(self) -> float:
        """Logarithm of the best weight."""
        return float(best(self.values.mean(axis=0, keepdims=True))[0])

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `top`, over resampled seeds."""
        drawn = np.random.default_rng(0).integers(len(self.values), size=(RESAMPLES, len(self.values)))
        low, high = np.quantile(best(self.values[drawn].mean(axis=1)), (0.025, 0.975))
        return float(low), float(high)

    @property
    def is_fitted(self) -> bool:
        return self.task in FITTED and not self.fresh


def spots(study: Study, rows: list[dict]) -> list[Spot]:
    """The places with at least two seeds of all weights."""
    (section,) = study.sections
    found = finished_runs(study, section, rows)
    places = []
    for task in study.tasks:
        for suffix in ("", FRESH_SUFFIX):
            of = [found.get((task, name + suffix), {}) for name in WEIGHTS_OF]
            seeds = sorted(set.intersection(*map(set, of)))
            if len(seeds) < 2:
                continue
            values = np.array([[runs[seed]["accuracy_after"] for runs in of] for seed in seeds])
            first = [of[0][seed] for seed in seeds]
            rate = float(np.mean([row["accuracy_before"] for row in first]))
            tokens = curve_mean([row["length"][0] for row in first])
            places.append(Spot(task, bool(suffix), rate, tokens, values))
    return places


def logarithms() -> np.ndarray:
    return np.log(list(WEIGHTS_OF.values())) / math.log(BASE)


def best(means: np.ndarray) -> np.ndarray:
    """Logarithms of the best weights, from (n, weights): tops of parabolas, or the best tried where there is none."""
    x = logarithms()
    a, b, _ = np.polyfit(x, means.T, 2)
    tops = -b / (2 * np.where(a < 0, a, -1))
    return np.where(a < 0, tops.clip(x.min(), x.max()), x[means.argmax(axis=1)])


def features(spot: Spot) -> list[float]:
    return [1.0, math.log(spot.rate / (1 - spot.rate)), float(spot.kind == OWN)]


def fit(places: list[Spot]) -> np.ndarray | None:
    """The formula's three numbers, from the four spots that the plan names; `None` if one is missing."""
    chosen = [spot for spot in places if spot.is_fitted]
    if len(chosen) < len(FITTED):
        return None
    tops = [spot.top for spot in chosen]
    return np.linalg.lstsq(np.array([features(spot) for spot in chosen]), np.array(tops), rcond=None)[0]


def predict(formula: np.ndarray, spot: Spot) -> float:
    x = logarithms()
    return float(np.clip(np.dot(features(spot), formula), x.min(), x.max()))


def judge(places: list[Spot], formula: np.ndarray) -> dict:
    """How far the formula is from the best weights of the other spots, against two constants."""
    fitted, others = ([spot for spot in places if spot.is_fitted is wanted] for wanted in (True, False))
    tops = np.array([spot.top for spot in others])
    constants = {
        "the mean of the four": np.mean([spot.top for spot in fitted]),
        "0.2": math.log(0.2) / math.log(BASE),
    }
    errors = np.abs(np.array([predict(formula, spot) for spot in others]) - tops)
    against = {name: np.abs(value - tops) for name, value in constants.items()}
    better = {name: compare_pairs(of, errors) for name, of in against.items()}
    return {
        "spots": len(others),
        "formula": float(errors.mean()),
        "constants": {name: float(of.mean()) for name, of in against.items()},
        "better by": better,
        "predicts": all(entry["low"] > 0 for entry in better.values()),
    }


def staleness(places: list[Spot]) -> dict:
    """How the best weight, as a logarithm, differs with one step per rollout batch from that with four."""
    tops = {(spot.task, spot.fresh): spot.top for spot in places}
    tasks = [task for task, fresh in tops if fresh and (task, False) in tops]
    return compare_pairs(*(np.array([tops[task, fresh] for task in tasks]) for fresh in (True, False)))


def weight_of(logarithm: float) -> str:
    return f"{BASE**logarithm:.2g}"


def page(study: Study, places: list[Spot], stem: Path) -> str:
    parts = [f"# Tables of the study `{study.name}`\n", HOW_TO_READ.format(name=stem.name)]
    parts.append(f"![The best weight of losers by start pass rate]({stem.name}_map.png)\n")
    formula, lines = fit(places), []
    for spot in places:
        baseline = spot.values[:, list(WEIGHTS_OF).index(BASELINE)]
        gains = [difference(compare_pairs(column, baseline)) for column in spot.values.T]
        top, (low, high) = spot.top, spot.interval
        lines.append(
            [
                spot.name, spot.kind, f"{spot.rate:.2f}", f"{spot.tokens:.0f}", str(len(spot.values)),
                f"{baseline.mean():.3f}", *(g for g, name in zip(gains, WEIGHTS_OF, strict=True) if name != BASELINE),
                f"{weight_of(top)} [{weight_of(low)}, {weight_of(high)}]", f"{BASE**top / (1 + BASE**top):.2f}",
                "" if formula is None else weight_of(predict(formula, spot)),
            ]
        )  # fmt: skip
    weights = [f"losers {weight:g}" for name, weight in WEIGHTS_OF.items() if name != BASELINE]
    header = [
        "spot",
        "errors",
        "pass rate before",
        "tokens",
        "seeds",
        "DAPO",
        *weights,
        "best weight",
        "share of mass",
    ]
    parts.append(table([*header, "formula"], lines))
    of_steps = difference(staleness(places))
    parts.append(f"log₅ of the best weight with one step per rollout batch, less that with four: {of_steps}.\n")
    if formula is not None:
        found = judge(places, formula)
        constants = ", ".join(f"{value:.2f} of the constant {name}" for name, value in found["constants"].items())
        better = "; ".join(f"than {name} by {difference(entry)}" for name, entry in found["better by"].items())
        a, b, c = formula
        parts.append(
            f"Formula: log₅ w = {a:+.2f} {b:+.2f} logit p {c:+.2f} if the errors are the model's own. Mean error on "
            f"the {found['spots']} other spots, in powers of five: {found['formula']:.2f}, {constants}. Better "
            f"{better}. "
            f"**It {'predicts' if found['predicts'] else 'does not predict'} them better than a constant.**\n"
        )
    return "\n".join(parts)


def draw(places: list[Spot], path: Path) -> None:
    """The best weight of each spot with its interval, by the pass rate before training."""
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for spot in places:
        top, (low, high) = spot.top, spot.interval
        color = "tab:red" if spot.kind == OWN else "tab:blue"
        x = spot.rate + (0.006 if spot.fresh else -0.006)
        axis.plot([x, x], [BASE**low, BASE**high], color=color, linewidth=1.2)
        axis.plot(x, BASE**top, "o", color=color, markerfacecolor="white" if spot.fresh else color, markersize=6)
        if not spot.fresh:
            axis.annotate(
                spot.task, (x, BASE**high), fontsize=7, ha="center", xytext=(0, 4), textcoords="offset points"
            )
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set_yscale("log")
    axis.set_xlabel("pass rate before training")
    axis.set_ylabel("best weight of losers (winners: 1)")
    for label, style in (
        ("errors of the teacher", {"color": "tab:blue"}),
        ("the model's own errors", {"color": "tab:red"}),
        ("4 steps per rollout batch", {"color": "grey"}),
        ("1 step", {"color": "grey", "markerfacecolor": "white"}),
    ):
        axis.plot([], [], "o", label=label, **style)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write_report(study: Study, rows: list[dict], stem: Path) -> None:
    """Write STEM.md, STEM.json and STEM_map.png."""
    places = spots(study, rows)
    if not places:
        raise SystemExit(f"{study.name}: nothing to report. No task has two seeds with all weights.")
    formula = fit(places)
    numbers = {
        "spots": [
            {**asdict(spot), "values": spot.values.tolist(), "best": spot.top, "interval": spot.interval}
            for spot in places
        ],
        "formula": None if formula is None else formula.tolist(),
        "judged": None if formula is None else judge(places, formula),
    }
    stem.with_suffix(".json").write_text(json.dumps(without_nan(numbers), indent=1, allow_nan=False) + "\n")
    draw(places, stem.with_name(f"{stem.name}_map.png"))
    stem.with_suffix(".md").write_text(page(study, places, stem))
