"""The plots of the report, as SVG without scripts. The page's style gives them their colours."""

import math
from dataclasses import dataclass, field
from html import escape

import numpy as np
from markupsafe import Markup

from .run import Run
from .text import visible
from .tokens import TokenTable


WIDTH, HEIGHT = 440, 230
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 28, 24  # margins, for ticks and the legend
SMOOTH_FROM = 100  # points; longer curves are drawn with their running mean
MARKERS_UP_TO = 60
REWARD_SPAN, COEFFICIENT_SPAN = 0.2, 0.2  # of an axis at least, so that noise does not fill it
BINS = 24  # of positions
MIN_BIN = 10  # tokens; fewer say little


@dataclass
class Line:
    """A curve: `x` and `y` of shape (n,); `low` and `high`, of the same shape, bound a band around it."""

    name: str
    style: str  # class of the page's style
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray = field(default_factory=lambda: np.zeros(0))
    high: np.ndarray = field(default_factory=lambda: np.zeros(0))


def reward_plot(run: Run) -> Markup | None:
    """The mean reward over optimiser steps, in training and in evaluation; `None` if nothing was logged."""
    named = {"reward": "training"}
    named |= {key: f"evaluation on {name}" if name else "evaluation" for key, name in run.evaluations.items()}
    lines = []
    for key, name in named.items():
        steps, values = run.logged(key)
        if len(values):
            lines.append(Line(visible(name), f"series-{min(len(lines), 2)}", steps, values))
    return chart("Mean reward by optimiser step", lines, REWARD_SPAN) if lines else None


def coefficients_plot(table: TokenTable) -> Markup | None:
    """Mean and quartiles of each side's recorded coefficients by the token's position; `None` if too few are known."""
    width = math.ceil(table.positions.max(initial=1) / BINS)
    bins = (table.positions - 1) // width
    lines = []
    for side, name in ((1, "winners"), (-1, "losers")):
        points = []
        for b in range(BINS):
            inside = (bins == b) & (table.sides == side) & np.isfinite(table.coefficients)
            if inside.sum() >= MIN_BIN:
                coefficients = table.coefficients[inside]
                quartiles = np.quantile(coefficients, (0.25, 0.75))
                points.append((table.positions[inside].mean(), coefficients.mean(), *quartiles))
        if points:
            lines.append(Line(name, name, *np.array(points).T))
    return chart("Coefficients by position in the completion", lines, COEFFICIENT_SPAN, marked=1.0) if lines else None


def ticks(low: float, high: float, count: int, whole: bool = False) -> list[float]:
    """About `count` round numbers between `low` and `high`; only integers if `whole`."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    step = max(1, round(step)) if whole else step
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def axis_range(values: np.ndarray, least: float) -> tuple[float, float]:
    """Lower and upper end of an axis that spans `least` or more."""
    low, high = float(values.min()), float(values.max())
    missing = max(0.0, least - (high - low)) / 2
    margin = 0.06 * (high - low + 2 * missing)
    return low - missing - margin, high + missing + margin


def chart(title: str, lines: list[Line], least: float, marked: float | None = None) -> Markup:
    """
    An SVG of curves over integers.

    Args:
        title (`str`): What it shows, for screen readers; they also get the ends of each curve.
        lines (`list[Line]`): The curves, at least one.
        least (`float`): The smallest range of the vertical axis.
        marked (`float`, *optional*): A value with a dotted line.
    """
    every_x = np.concatenate([line.x for line in lines])
    every_y = np.concatenate([values for line in lines for values in (line.y, line.low, line.high)])
    left, right = float(every_x.min()), float(max(every_x.max(), every_x.min() + 1))
    low, high = axis_range(np.append(every_y, [] if marked is None else [marked]), least)

    def points(x, y) -> list[str]:
        across = LEFT + (np.asarray(x) - left) / (right - left) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (np.asarray(y) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return [f"{a:.1f},{b:.1f}" for a, b in zip(across, down, strict=True)]

    def path(x, y, style: str) -> str:
        return f'<polyline class="{style}" points="{" ".join(points(x, y))}"/>'

    parts = []
    for tick in ticks(low, high, 5):
        _, down = points([left], [tick])[0].split(",")
        parts.append(path([left, right], [tick, tick], "grid"))
        parts.append(f'<text x="{LEFT - 6}" y="{down}" dy=".32em" text-anchor="end">{tick:.4g}</text>')
    for tick in ticks(left, right, 6, whole=True):
        across, _ = points([tick], [low])[0].split(",")
        parts.append(f'<text x="{across}" y="{HEIGHT - 6}" text-anchor="middle">{tick:,.0f}</text>')
    if marked is not None:
        parts.append(path([left, right], [marked, marked], "marked"))
    label, start = [], LEFT
    for line in lines:
        label.append(f"{line.name} from {line.y[0]:.3g} at {line.x[0]:.0f} to {line.y[-1]:.3g} at {line.x[-1]:.0f}")
        parts.append(f'<g class="{line.style}">')
        if len(line.low):
            band = points([*line.x, *line.x[::-1]], [*line.low, *line.high[::-1]])
            parts.append(f'<polygon points="{" ".join(band)}"/>')
        if len(line.x) >= SMOOTH_FROM:
            window = np.ones(len(line.x) // 20)
            mean = np.convolve(line.y, window, "same") / np.convolve(np.ones(len(line.y)), window, "same")
            parts += [path(line.x, line.y, "thin"), path(line.x, mean, "line")]
        else:
            parts.append(path(line.x, line.y, "line"))
        if len(line.x) <= MARKERS_UP_TO:
            for x, y, point in zip(line.x, line.y, points(line.x, line.y), strict=True):
                across, down = point.split(",")
                parts.append(f'<circle cx="{across}" cy="{down}" r="2.5"><title>{x:.4g}: {y:.4g}</title></circle>')
        if len(lines) > 1:
            parts.append(f'<polyline class="line" points="{start},12 {start + 18},12"/>')
            parts.append(f'<text x="{start + 24}" y="16">{escape(line.name)}</text>')
            start += 40 + 7 * len(line.name)
        parts.append("</g>")
    label = escape(f"{title}: {'; '.join(label)}")
    return Markup(f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>')
