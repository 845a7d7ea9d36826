"""The plots of the report. `plot.html.j2` draws them as SVG, and the page's style gives them their colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..evaluation.seed_statistics import Paired
from .reader import Run


WIDTH = 440  # of the view box in the template
HEIGHT = 220
LEFT = 44  # margins, for ticks
RIGHT = 12
TOP = 24  # also for the titles of the axes
BOTTOM = 40
LEAST_SPAN = 0.2  # of a vertical axis, so that noise does not fill it
MARGIN = 1.12  # a vertical axis is so many times as long as its curves need
BINS = 24  # of positions, and of steps
MIN_BIN = 10  # tokens; fewer say little
ROW = 44  # height of a difference
SERIES = 8  # styles of curves
STEP = "optimiser step"


@dataclass
class Line:
    """A curve: n `points` with columns `x` and `y`, and `low` and `high`, which bound a band around it."""

    name: str
    style: str  # class of the page's style
    points: pd.DataFrame


@dataclass
class Axis:
    """The values from `low` to `high` are the pixels from `start` to `end`."""

    low: float
    high: float
    start: int
    end: int

    def pixels(self, values: Sequence[float]) -> np.ndarray:
        return np.interp(values, [self.low, self.high], [self.start, self.end])

    def ticks(self, count: int, least_step: float = 0.0) -> list[float]:
        """About `count` round values."""
        span = self.high - self.low
        rough = max(least_step, span / count)
        power = 10.0 ** math.floor(math.log10(rough))
        factor = next(round_value for round_value in (1, 2, 5, 10) if round_value * power >= rough)
        step = factor * power
        first = math.ceil(self.low / step)
        last = math.floor(self.high / step)
        return [i * step for i in range(first, last + 1)]


@dataclass
class Plot:
    """
    A figure of the page: curves over integers.

    Attributes:
        title, caption (`str`): Above the figure.
        x_title, y_title (`str`): Those of the axes.
        lines (`list[Line]`): The curves.
        marks (`Sequence[float]`): Values with a dotted line.
        across, up ([`Axis`]): The axes.
    """

    title: str
    caption: str
    x_title: str
    y_title: str
    lines: list[Line]
    marks: Sequence[float]
    across: Axis
    up: Axis

    def pixels(self, x: Sequence[float], y: Sequence[float]) -> str:
        """Points as SVG has them."""
        across = self.across.pixels(x)
        up = self.up.pixels(y)
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, up, strict=True))


def reward_plot(run: Run) -> Plot | None:
    """The mean reward over optimiser steps, in training and in evaluation; `None` if nothing was logged."""
    names = {"reward": "training"}
    for key, name in run.evaluations.items():
        names[key] = f"evaluation on {name}" if name else "evaluation"
    lines = []
    for i, (key, name) in enumerate(names.items()):
        values = run.logged(key)
        points = pd.DataFrame({"x": values.index, "y": values, "low": values, "high": values})
        lines.append(Line(name, series(i), points))
    return _plot("Reward", "as logged", STEP, "mean reward", lines)


def arms_plot(arms: dict[str, list[Run]], in_evaluation: bool) -> Plot | None:
    """
    The mean reward of each arm of a comparison over its runs, one for each seed, with their range: in evaluation, of
    all sets together, or in training.
    """
    lines = []
    for i, (arm, runs) in enumerate(arms.items()):
        by_seed = pd.DataFrame({run.path: rewards_of(run, in_evaluation) for run in runs})
        size = len(by_seed) // BINS + 1
        block = np.arange(len(by_seed)) // size  # noise would hide the arms from each other
        means = by_seed.groupby(block).mean()
        points = means.agg(["mean", "min", "max"], axis=1)
        points.columns = ["y", "low", "high"]
        points["x"] = by_seed.index.to_series().groupby(block).mean()
        lines.append(Line(arm, series(i), points))
    title = "Reward in evaluation" if in_evaluation else "Reward in training"
    return _plot(title, "mean of the seeds with their range", STEP, "mean reward", lines)


def rewards_of(run: Run, in_evaluation: bool) -> pd.Series:
    """Rewards of a run by step."""
    if not in_evaluation:
        return run.logged("reward")
    return pd.DataFrame({key: run.logged(key) for key in run.evaluations}).mean(axis=1)


@dataclass
class Differences:
    """
    A figure of differences, one row for each of `pairs`: a point for each seed, the mean and its interval.

    Attributes:
        title, caption, x_title (`str`): As in [`Plot`].
        pairs (`list[Paired]`): What is shown.
        rule (`str`): What the arms are taken from.
        across ([`Axis`]): The axis of differences.
        height (`int`): Of the view box.
    """

    title: str
    caption: str
    x_title: str
    pairs: list[Paired]
    rule: str
    across: Axis
    height: int


def differences_plot(outcome: str, rule: str, pairs: Sequence[Paired]) -> Differences:
    """The differences between a rule and the other arms, by seed."""
    ends = [0.0]
    for paired in pairs:
        ends += [*paired.by_seed, paired.mean - paired.half, paired.mean + paired.half]
    margin = max(np.ptp(ends), 0.01) / 20
    across = Axis(min(ends) - margin, max(ends) + margin, LEFT, WIDTH - RIGHT)
    caption = "a dot for each seed; the bar is the mean with its 95 % interval, uncorrected"
    height = ROW * len(pairs) + BOTTOM
    return Differences("Differences", caption, f"difference in {outcome}", list(pairs), rule, across, height)


def coefficients_plot(tokens: pd.DataFrame) -> Plot | None:
    """
    The coefficients of each side by the token's position: the mean over steps of each step's mean, with quartiles of
    these means. Means over the tokens of all steps would mix steps whose levels differ. `None` if too few are known.
    """
    last = tokens.position.max()
    lines = []
    for name, side in (("winners", 1), ("losers", -1)):
        of_side = tokens[tokens.side == side]
        place = ((of_side.position - 1) * BINS // last).rename("bin")
        bins = of_side.groupby(place)
        of_steps = of_side.groupby([place, of_side.step]).coefficient.mean().groupby("bin")
        points = pd.DataFrame(
            {
                "x": bins.position.mean(),
                "y": of_steps.mean(),
                "low": of_steps.quantile(0.25),
                "high": of_steps.quantile(0.75),
            }
        )
        points = points[bins.size() >= MIN_BIN]
        lines.append(Line(name, name, points))
    caption = "mean of the recorded steps’ means, with their quartiles"
    return _plot(
        "Coefficients by side and position", caption, "position in the completion", "coefficient", lines, [1.0]
    )


def series(i: int) -> str:
    """The style of the i-th curve."""
    return f"series-{i % SERIES}"


def _plot(
    title: str, caption: str, x_title: str, y_title: str, lines: list[Line], marks: Sequence[float] = ()
) -> Plot | None:
    """A plot of the curves that have points; `None` without any."""
    lines = [line for line in lines if len(line.points)]
    if not lines:
        return None
    points = pd.concat([line.points for line in lines])
    x = points.x
    y = np.append(points[["y", "low", "high"]], marks)
    first = x.min()
    last = max(x.max(), first + 1)
    middle = (y.min() + y.max()) / 2
    half = MARGIN * max(LEAST_SPAN, np.ptp(y)) / 2
    across = Axis(first, last, LEFT, WIDTH - RIGHT)
    up = Axis(middle - half, middle + half, HEIGHT - BOTTOM, TOP)
    return Plot(title, caption, x_title, y_title, lines, marks, across, up)
