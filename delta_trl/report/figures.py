"""The plots of the report, as SVG without scripts. The page's style gives them their colours."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from markupsafe import Markup

from .reader import Run
from .text import visible


WIDTH = 440
HEIGHT = 220
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 8, 24  # margins, for ticks
LEAST_SPAN = 0.2  # of a vertical axis, so that noise does not fill it
BINS = 24  # of positions, and of steps
MIN_BIN = 10  # tokens; fewer say little


@dataclass
class Line:
    """A curve: `x` and `y` of shape (n,); `low` and `high`, of the same shape, bound a band around it."""

    name: str
    style: str  # class of the page's style
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass
class Plot:
    """A figure of the page. `svg` says its title and the ends of each curve to screen readers."""

    title: str
    caption: str
    lines: list[Line]
    svg: Markup


def reward_plot(run: Run) -> Plot | None:
    """The mean reward over optimiser steps, in training and in evaluation; `None` if nothing was logged."""
    named = {"reward": "training"}
    named |= {key: f"evaluation on {name}" if name else "evaluation" for key, name in run.evaluations.items()}
    lines = []
    for key, name in named.items():
        steps, values = run.logged(key)
        if len(values):
            lines.append(Line(visible(name), f"series-{min(len(lines), 2)}", steps, values, values, values))
    return _plot("Reward", "mean over the rollout batch, by optimiser step", lines)


def arms_plot(arms: dict[str, list[Run]]) -> Plot | None:
    """The mean training reward of each arm of a comparison over its runs, one for each seed, with their range."""
    lines = []
    for i, (arm, runs) in enumerate(arms.items()):
        by_run = pd.DataFrame({run.path: pd.Series(*reversed(run.logged("reward"))) for run in runs})
        block = np.arange(len(by_run)) // (len(by_run) // BINS + 1)  # noise would hide the arms from each other
        means = by_run.groupby(block).mean()
        steps = pd.Series(by_run.index).groupby(block).mean()
        points = [one.to_numpy() for one in (steps, means.mean(axis=1), means.min(axis=1), means.max(axis=1))]
        lines.append(Line(visible(arm), f"series-{i % 4}", *points))
    caption = "mean of the seeds with their range, by optimiser step"
    return _plot("Training reward", caption, lines)


def coefficients_plot(tokens: pd.DataFrame) -> Plot | None:
    """Mean and quartiles of each side's recorded coefficients by the token's position; `None` if too few are known."""
    width = math.ceil(tokens.position.max() / BINS) if len(tokens) else 1
    bins = tokens.dropna(subset="coefficient").groupby(["side", (tokens.position - 1) // width])
    points = bins.agg(
        n=("position", "size"),
        x=("position", "mean"),
        y=("coefficient", "mean"),
        low=("coefficient", lambda c: c.quantile(0.25)),
        high=("coefficient", lambda c: c.quantile(0.75)),
    )
    points = points[points.pop("n") >= MIN_BIN]
    lines = [
        Line(name, name, *points.loc[side].to_numpy().T)
        for side, name in ((1, "winners"), (-1, "losers"))
        if side in points.index
    ]
    caption = "mean coefficient of the recorded tokens with quartiles, by position in the completion"
    return _plot("Coefficients by side and position", caption, lines, marked=1.0)


def ticks(low: float, high: float, count: int, whole: bool = False) -> list[float]:
    """About `count` round numbers between `low` and `high`; only integers if `whole`."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    step = max(1, round(step)) if whole else step
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _plot(title: str, caption: str, lines: list[Line], marked: float | None = None) -> Plot | None:
    """A plot of curves over integers; `marked` is a value with a dotted line. `None` without curves."""
    if not lines:
        return None
    every_x = np.concatenate([line.x for line in lines])
    every_y = np.concatenate([values for line in lines for values in (line.y, line.low, line.high)])
    every_y = np.append(every_y, [] if marked is None else [marked])
    left = every_x.min()
    right = max(every_x.max(), every_x.min() + 1)
    middle = (every_y.min() + every_y.max()) / 2
    span = 1.12 * max(LEAST_SPAN, np.ptp(every_y))
    low = middle - span / 2
    high = middle + span / 2

    def points(x, y) -> list[str]:
        across = LEFT + (np.asarray(x) - left) / (right - left) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (np.asarray(y) - low) / span * (HEIGHT - TOP - BOTTOM)
        return [f"{a:.1f},{b:.1f}" for a, b in zip(across, down, strict=True)]

    def level(y: float, style: str) -> str:
        return f'<polyline class="{style}" points="{" ".join(points([left, right], [y, y]))}"/>'

    parts = []
    for tick in ticks(low, high, 5):
        [_, down] = points([left], [tick])[0].split(",")
        parts.append(level(tick, "grid"))
        parts.append(f'<text x="{LEFT - 6}" y="{down}" dy=".32em" text-anchor="end">{tick:.4g}</text>')
    for tick in ticks(left, right, 6, whole=True):
        [across, _] = points([tick], [low])[0].split(",")
        parts.append(f'<text x="{across}" y="{HEIGHT - 6}" text-anchor="middle">{tick:,.0f}</text>')
    if marked is not None:
        parts.append(level(marked, "marked"))
    for line in lines:
        band = points([*line.x, *line.x[::-1]], [*line.low, *line.high[::-1]])
        curve = points(line.x, line.y)
        across, down = curve[-1].split(",")  # its end has a dot, without which a single point would not be seen
        parts.append(
            f'<g class="{line.style}"><polygon points="{" ".join(band)}"/>'
            f'<polyline class="line" points="{" ".join(curve)}"/><circle cx="{across}" cy="{down}" r="3"/></g>'
        )
    ends = [f"{o.name} from {o.y[0]:.3g} at {o.x[0]:.0f} to {o.y[-1]:.3g} at {o.x[-1]:.0f}" for o in lines]
    svg = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}: {}">').format(
        WIDTH, HEIGHT, title, "; ".join(ends)
    )
    return Plot(title, caption, lines, svg + Markup("".join(parts)) + Markup("</svg>"))
