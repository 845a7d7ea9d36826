"""The plots of the report, as plotly figures. The page's style colours axes and text, to follow the reader's theme."""

import math
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from .run import Run
from .text import visible
from .tokens import TokenTable


# Distinct with common colour-vision deficiencies, with a contrast of 3:1 or better to the page's light and dark
# background. Lines also differ in dash.
WINNERS, LOSERS = "#1a936f", "#9467bd"
SERIES = ("#2f7fc1", "#c96a0b", "#7a7f87")
DASHES, DASH_NAMES = ("solid", "dash", "dot"), ("solid", "dashed", "dotted")
SYMBOLS = ("circle", "diamond")  # of two runs
SIDES = ((1, "winners", WINNERS, "solid"), (-1, "losers", LOSERS, "dash"))


@dataclass(frozen=True)
class Span:
    """
    The smallest range of a vertical axis, so that noise does not fill it: `least`, or if that is more, `share` times
    the largest absolute value. An axis ends at `lowest` and `highest`, unless values lie beyond.
    """

    least: float = 0.0
    share: float = 0.25
    lowest: float = -math.inf
    highest: float = math.inf


@dataclass(frozen=True)
class Panel:
    """A plot of logged values: `series` are keys of the trainer's log with the name of their curve."""

    title: str
    series: dict[str, str]
    note: str = ""
    span: Span = Span()


SHARE = Span(1, 0, 0, 1)
AMOUNT = Span(0, 0.5, 0)
REWARD = Span(0.2, 0.1)
COEFFICIENTS = Span(0.2, 0)
PANELS = (
    Panel("Completion length", {"completions/mean_length": "mean"}, "tokens", Span(10, 0.3, 0)),
    Panel("Entropy", {"entropy": "entropy"}, "of the policy's next-token distribution, in nats", Span(0.02, 0.5, 0)),
    Panel(
        "Mean coefficient by side",
        {"credit/coefficient_mean_positive": "winners", "credit/coefficient_mean_negative": "losers"},
        "above 1: more credit for winners, more blame for losers, than in DAPO",
        COEFFICIENTS,
    ),
    Panel("Coefficient spread", {"credit/coefficient_std": "standard deviation"}, "0 is plain DAPO", Span(0.1, 0, 0)),
    Panel(
        "Variance between the sides",
        {"credit/between_sides_variance": "share"},
        "near 1: winners against losers; near 0: tokens within a response",
        SHARE,
    ),
    Panel(
        "Temperatures",
        {"credit/temperature_positive": "winners", "credit/temperature_negative": "losers"},
        "γ, the spread of each side's margins",
        AMOUNT,
    ),
    Panel(
        "Centroid cosine",
        {"credit/centroid_cosine": "cosine"},
        "near 1: both sides share most of their gradient",
        Span(0.2, 0, -1, 1),
    ),
    Panel(
        "Centroid length",
        {"credit/centroid_norm_ratio": "winners / losers"},
        "below 1: tokens that the model was sure of get more credit in winners, less blame in losers",
        Span(0.5, 0, 0),
    ),
    Panel(
        "Clip ratios",
        {"clip_ratio/low_mean": "low", "clip_ratio/high_mean": "high"},
        "share of tokens whose update the clip range stops",
        Span(0.02, 0, 0, 1),
    ),
    Panel("FIPO weight", {"credit/fipo_weight_mean": "mean"}, span=Span(0.2, 0)),
    Panel("Groups without contrast", {"frac_reward_zero_std": "share"}, "all rewards equal: no gradient", SHARE),
    Panel(
        "Cut-off completions", {"completions/clipped_ratio": "share"}, "ran into the length limit", Span(0.1, 0, 0, 1)
    ),
    Panel("KL divergence", {"kl": "KL"}, "to the reference model", Span(0.01, 0.5)),
    Panel("Gradient norm", {"grad_norm": "norm"}, "before clipping", AMOUNT),
)
# logged under `credit/`, but not drawn
NOT_DRAWN = {f"credit/{name}" for name in ("neutral", "seconds", "extra_forward_passes")}
NOT_DRAWN |= {f"credit/coefficient_{name}" for name in ("min", "mean", "max")}
SMOOTH_FROM = 100  # logged values; longer curves are drawn with their running mean
MARKERS_UP_TO = 60
TOP_WITH_LEGEND = 26
BINS = 24
MIN_BIN = 10  # tokens; fewer say little


@dataclass
class Plot:
    """A figure with its title and note; `label` describes it for screen readers."""

    title: str
    note: str
    label: str
    figure: go.Figure
    is_credit: bool = False  # whether it shows what token credit logs


def curves(runs: list[Run]) -> list[Plot]:
    """One plot for every quantity that a run has logged; runs are overlaid, told apart by colour and marker."""
    panels = (_reward(runs), *PANELS, *_own_metrics(runs), *_reward_functions(runs))
    return [plot for panel in panels if (plot := _curves(panel, runs))]


def _curves(panel: Panel, runs: list[Run]) -> Plot | None:
    """The curves of a panel; `None` if none of its series was logged."""
    figure, labels, dashes, values = _figure("step"), [], {}, []
    for r, run in enumerate(runs):
        for s, (key, name) in enumerate(panel.series.items()):
            name = f"evaluation, {run.evaluations[key]}" if key in run.evaluations else name
            x, y = run.logged(key)
            if not len(x):
                continue
            colour = SERIES[(r if len(runs) > 1 else s) % len(SERIES)]
            if name in ("winners", "losers") and len(runs) == 1:
                colour = WINNERS if name == "winners" else LOSERS
            full_name = name if len(runs) == 1 else f"{_plain(run_name(runs, r))}, {name}"
            _curve(figure, x, y, full_name, colour, DASHES[s % len(DASHES)], SYMBOLS[r] if len(runs) > 1 else None)
            values.append(y)
            labels.append(f"{full_name} from {y[0]:.4g} at step {x[0]} to {y[-1]:.4g} at step {x[-1]}")
            dashes[name] = DASH_NAMES[s % len(DASHES)]
    if not labels:
        return None
    legend = len(labels) > 1 and len(runs) == 1  # for two runs, the page itself has a legend
    note = panel.note
    if len(dashes) > 1 and not legend:
        note = "; ".join(filter(None, [note, ", ".join(f"{name} {dash}" for name, dash in dashes.items())]))
    figure.update_layout(showlegend=legend, margin_t=TOP_WITH_LEGEND if legend else 10)
    figure.update_yaxes(range=axis_range(np.concatenate(values), panel.span))
    is_credit = next(iter(panel.series)).startswith("credit/")
    return Plot(panel.title, note, f"{panel.title}: {'; '.join(labels)}", figure, is_credit)


def axis_range(values: np.ndarray, span: Span) -> list[float]:
    """Lower and upper end of an axis."""
    low, high = float(values.min()), float(values.max())
    missing = max(span.least, span.share * max(abs(low), abs(high))) - (high - low)
    if missing > 0:
        low, high = low - missing / 2, high + missing / 2
        # the axis stops at the bounds: what is cut off at one end is added at the other
        if low < span.lowest:
            low, high = min(span.lowest, values.min()), high + span.lowest - low
        elif high > span.highest:
            low, high = low - (high - span.highest), max(span.highest, values.max())
        low = max(low, min(span.lowest, values.min()))
    margin = 0.06 * (high - low) or 0.05
    return [low - margin, high + margin]


def _curve(
    figure: go.Figure, x: np.ndarray, y: np.ndarray, name: str, colour: str, dash: str, symbol: str | None = None
):
    """Add a curve. With `symbol`, some of its points are marked with it, which tells runs apart without colour."""
    line = {"color": colour, "dash": dash, "width": 2}
    marker = {"size": 7, "symbol": symbol, "maxdisplayed": 15} if symbol else {"size": 4}
    if len(x) < SMOOTH_FROM:
        mode = "lines+markers" if symbol or len(x) <= MARKERS_UP_TO else "lines"
        figure.add_scatter(x=x, y=y, name=name, line=line, mode=mode, marker=marker)
        return
    ones = np.ones(len(x) // 20)
    mean = np.convolve(y, ones, "same") / np.convolve(np.ones(len(y)), ones, "same")
    thin = {"color": colour, "width": 1}
    shared = {"x": x, "name": name, "legendgroup": name}
    figure.add_scatter(y=y, line=thin, opacity=0.4, showlegend=False, mode="lines", **shared)
    mode = "lines+markers" if symbol else "lines"
    figure.add_scatter(y=mean, line=line, hoverinfo="skip", mode=mode, marker=marker, **shared)


def _reward(runs: list[Run]) -> Panel:
    evaluations = {key: f"evaluation, {name}" for run in runs for key, name in run.evaluations.items()}
    return Panel("Reward", {"reward": "training", **evaluations}, "mean over the rollout batch", REWARD)


def _own_metrics(runs: list[Run]) -> list[Panel]:
    """One panel for each metric that a user's own rule has logged."""
    known = {key for panel in PANELS for key in panel.series} | NOT_DRAWN
    keys = {key for run in runs for entry in run.history for key in entry if key.startswith("credit/")}
    return [Panel(key.removeprefix("credit/"), {key: "value"}) for key in sorted(keys - known)]


def _reward_functions(runs: list[Run]) -> list[Panel]:
    keys = dict.fromkeys(key for run in runs for entry in run.history for key in entry
                         if key.startswith("rewards/") and key.endswith("/mean"))  # fmt: skip
    series = {key: _plain(key.removeprefix("rewards/").removesuffix("/mean")) for key in keys}
    return [Panel("Rewards by function", series, "mean of each", REWARD)] if len(series) > 1 else []


def run_name(runs: list[Run], index: int) -> str:
    """Short name of a run: its folder's. If two are equal, with the parent's name; else with a letter."""
    paths = [run.path.resolve() for run in runs]
    for names in ([path.name for path in paths], ["/".join(path.parts[-2:]) for path in paths]):
        if names.count(names[index]) == 1:
            return visible(names[index])
    return visible(f"{'AB'[index]} {paths[index].name}")


def _plain(text: str) -> str:
    """Text for plotly, which interprets some HTML tags in names: their characters are replaced."""
    return visible(text).replace("<", "‹").replace(">", "›").replace("&", "＆")


def _figure(x: str) -> go.Figure:
    """An empty plot; `x` is what its horizontal axis counts."""
    axis = {"zeroline": False, "automargin": True, "showline": True, "ticks": "outside", "ticklen": 3}
    return go.Figure(
        layout={
            "template": "none",
            # the page's own background shows through
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 44, "r": 12, "t": TOP_WITH_LEGEND, "b": 26},
            "hovermode": "x unified",
            "xaxis": {**axis, "showgrid": False, "nticks": 7, "unifiedhovertitle": {"text": f"{x} %{{x}}"}},
            "yaxis": {**axis, "nticks": 5, "ticks": ""},
            "legend": {
                "orientation": "h",
                "y": 1,
                "yanchor": "bottom",
                "x": 0,
                "font": {"size": 11},
                "itemwidth": 30,
                "bgcolor": "rgba(0,0,0,0)",
            },
        }
    )


def distributions(table: TokenTable) -> list[Plot]:
    """Percentiles of the coefficients of each side over training."""
    plots = []
    for side, name, colour, dash in SIDES:
        x, quantiles = [], []
        for step in np.unique(table.steps):
            values = table.coefficients[(table.steps == step) & (table.sides == side)]
            if np.isfinite(values).any():
                x.append(int(step))
                quantiles.append(np.nanquantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)))
        if x:
            figure = _figure("step")
            q = np.array(quantiles).T
            _band(figure, x, q[0], q[4], colour, 0.18, "5–95 %")
            _band(figure, x, q[1], q[3], colour, 0.3, "25–75 %")
            _line(figure, x, q[2], "median", colour, dash)
            _mark_one(figure)
            label = (
                f"Coefficients of {name} over training: median {q[2][0]:.3f} at step {x[0]}, {q[2][-1]:.3f} at step "
                f"{x[-1]}; 5 to 95 per cent there {q[0][-1]:.3f} to {q[4][-1]:.3f}"
            )
            plots.append(Plot(name.capitalize(), "median, quartiles and 5–95 % of the recorded tokens", label, figure))
    _share_range(plots)
    return plots


def relations(table: TokenTable) -> list[Plot]:
    """Mean coefficient of each side against position, probability and entropy."""
    plots = []
    for title, note, values in (
        ("Position", "token's place in its completion", table.positions),
        ("Probability", "of the sampled token", table.probabilities),
        ("Entropy", "of the next-token distribution, in nats", table.entropies),
    ):
        figure, labels = _figure(title.lower()), []
        known = np.isfinite(values) & np.isfinite(table.coefficients)
        if not known.any():
            continue
        # Bins of equal width up to the 99.5th percentile; larger values are in the last bin
        highest = 1 if title == "Probability" else max(np.quantile(values[known], 0.995), 1e-6)
        bins = np.clip(values / highest * BINS, 0, BINS - 1)
        for side, name, colour, dash in SIDES:
            x, means, quartiles, counts = [], [], [], []
            for b in range(BINS):
                inside = known & (table.sides == side) & (bins >= b) & (bins < b + 1)
                if inside.sum() >= MIN_BIN:
                    x.append(float(values[inside].mean()))
                    means.append(float(table.coefficients[inside].mean(dtype=np.float64)))
                    quartiles.append(np.quantile(table.coefficients[inside], (0.25, 0.75)))
                    counts.append(int(inside.sum()))
            if x:
                lower, upper = np.array(quartiles).T
                _band(figure, x, lower, upper, colour, 0.18, f"{name}, quartiles", showlegend=False)
                _line(figure, x, means, name, colour, dash, counts)
                labels.append(f"{name} from {means[0]:.3f} at {x[0]:.3g} to {means[-1]:.3f} at {x[-1]:.3g}")
        if labels:
            _mark_one(figure)
            figure.update_xaxes(hoverformat=".3~g")
            figure.update_layout(legend_traceorder="normal")
            plots.append(Plot(title, note, f"Mean coefficient against {title.lower()}: {'; '.join(labels)}", figure))
    _share_range(plots)
    return plots


def _line(figure: go.Figure, x, y, name: str, colour: str, dash: str, counts: list[int] | None = None):
    hover = "%{y:.3f}" + (" (%{customdata:,} tokens)" if counts else "")
    figure.add_scatter(
        x=x,
        y=y,
        name=name,
        line={"color": colour, "dash": dash, "width": 2},
        mode="lines" if len(x) > MARKERS_UP_TO else "lines+markers",
        marker={"size": 4},
        customdata=counts,
        hovertemplate=hover,
    )


def _band(figure: go.Figure, x, lower, upper, colour: str, opacity: float, name: str, showlegend: bool = True):
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    edge = {"color": f"rgba({r},{g},{b},{opacity})", "width": 0.5}
    shared = {"x": x, "line": edge, "mode": "lines", "legendgroup": name}
    figure.add_scatter(y=lower, name=name, showlegend=False, hoverinfo="skip", **shared)
    figure.add_scatter(
        y=upper,
        name=name,
        showlegend=showlegend,
        fill="tonexty",
        fillcolor=edge["color"],
        customdata=lower,
        hovertemplate="%{customdata:.3f} – %{y:.3f}",
        **shared,
    )


def _mark_one(figure: go.Figure):
    figure.add_hline(y=1, line={"color": SERIES[2], "width": 1, "dash": "dot"})


def _share_range(plots: list[Plot]):
    """Set the same vertical range for plots that are shown side by side."""
    values = np.concatenate([[1.0], *(np.asarray(t.y, float) for plot in plots for t in plot.figure.data)])
    for plot in plots:
        plot.figure.update_yaxes(range=axis_range(values[np.isfinite(values)], COEFFICIENTS))
