"""The report: one HTML file that opens offline."""

import base64
import gzip
import secrets
from dataclasses import asdict
from pathlib import Path

import numpy as np
from plotly.io import to_html
from plotly.offline import get_plotlyjs
from wordcloud.wordcloud import FONT_PATH

from ..files import write_atomically
from .clouds import FULL, HEIGHT, WIDTH, average, cloud, farthest, frequent_types
from .completions import MAX_SIZE, shown_groups
from .figures import Plot, curves, distributions, relations, run_name
from .heatmap import STYLE, legend, shades_css, spread
from .run import HOW_TO_RECORD, Run
from .settings import differing, main_settings, rule_name
from .templates import template
from .text import visible
from .tokens import token_table
from .verdict import HOW, Sentence, compared, verdict


TABLE_ROWS = 100  # of the token table, at each end
PLOT_HEIGHT, LARGE_PLOT_HEIGHT = "190px", "320px"
RELATIVE = "#completions:has(#relative:checked) div.tokens > "  # tokens while the page's switch is on


def write_page(runs: list[Run], output: Path, *, min_count: int, step: int | None) -> None:
    """See [`~delta_trl.report.write_report`]."""
    names = [run_name(runs, i) for i in range(len(runs))]
    tables = [token_table(run) for run in runs]
    coefficients = [
        c.coefficients for run in runs if run.has_credit for group in run.groups for c in group.completions
    ]
    spreads = (
        spread(np.concatenate([np.zeros(0), *coefficients]) - 1),
        spread(np.concatenate([np.zeros(0), *(table.relative for table in tables)])),
    )
    # The content security policy allows only scripts with this nonce: a second defence besides escaping.
    nonce = secrets.token_urlsafe(16)
    plots: list[dict] = []

    def add(new: list[Plot], height: str = PLOT_HEIGHT) -> list[dict]:
        added = [_drawn(plot, len(plots) + i, height, nonce) for i, plot in enumerate(new)]
        plots.extend(added)
        return added

    all_curves = curves(runs)
    reward = add([plot for plot in all_curves if plot.title == "Reward"], LARGE_PLOT_HEIGHT)
    training = {
        "Diagnostics": add([plot for plot in all_curves if not plot.is_credit and plot.title != "Reward"]),
        "Token credit": add([plot for plot in all_curves if plot.is_credit]),
    }
    places = {plot["title"]: plot["id"] for some in training.values() for plot in some}
    blocks = [
        {"name": name, "distributions": add(distributions(table)), "relations": add(relations(table))}
        for run, name, table in zip(runs, names, tables, strict=True)
        if run.has_credit
    ]
    clouds, cloud_scale = _clouds(runs, names, min_count)
    groups, notes = _groups(runs, names, step, spreads)
    html = template("report/page.html.j2").render(
        title=" and ".join(names),
        nonce=nonce,
        style=f"{STYLE}\n{RELATIVE}span {{ background: none }}\n{shades_css(RELATIVE + '.r')}",
        runs=[
            {**_summary(run, name), "verdict": _linked(verdict(run, table, min_count), places)}
            for run, name, table in zip(runs, names, tables, strict=True)
        ],
        how=HOW,
        compared=_linked(compared(runs, names), places),
        differing=differing(runs),
        reward=reward,
        training={title: some for title, some in training.items() if some},
        blocks=blocks,
        clouds=clouds,
        cloud_scale=cloud_scale,
        cloud_size=(WIDTH, HEIGHT),
        min_count=min_count,
        cloud_font=base64.b64encode(Path(FONT_PATH).read_bytes()).decode() if clouds else "",
        legends=[legend(spreads[0]), legend(spreads[1], relative=True)],
        how_to_record=HOW_TO_RECORD,
        notes=notes,
        groups=groups,
        plotly=_packed(get_plotlyjs()) if plots else "",
    )
    write_atomically(html.encode(), output)


def _drawn(plot: Plot, number: int, height: str, nonce: str) -> dict:
    """A plot as the page shows it. Its script waits for plotly.js, which is in the page once, compressed."""
    html = to_html(
        plot.figure,
        config={"displayModeBar": False},
        include_plotlyjs=False,
        full_html=False,
        default_height=height,
        validate=False,
        div_id=f"figure-{number}",
    )
    html = html.replace("<script", f'<script nonce="{nonce}"', 1)
    return {"id": f"plot-{number}", "title": plot.title, "note": plot.note, "label": plot.label, "html": html}


def _groups(
    runs: list[Run], names: list[str], step: int | None, spreads: tuple[float, float]
) -> tuple[dict[str, list[dict]], list[str]]:
    """The groups of each run, compressed, and notes on what was left out. One with a contrast is selected."""
    shown, notes = {}, []
    for run, name in zip(runs, names, strict=True):
        shown[name], left_out = shown_groups(run, name, step, MAX_SIZE // len(runs), spreads)
        notes += left_out
    every = [group for some in shown.values() for group in some]
    first = next((group for group in every if group.has_contrast), every[0] if every else None)
    packed = {
        name: [{"title": group.title, "selected": group is first, "html": _packed(group.html)} for group in some]
        for name, some in shown.items()
        if some
    }
    return packed, notes


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _summary(run: Run, name: str) -> dict:
    """Name and key figures of a run, formatted."""
    figures = {}
    steps = max((entry["step"] for entry in run.history), default=None)
    if steps is not None:
        figures["optimiser steps"] = f"{steps:,}"
    for key, title, digits in (
        ("reward", "reward", 3),
        *((key, f"{measure} in evaluation", 3) for key, measure in run.evaluations.items()),
        ("completions/mean_length", "completion length", 0),
        ("entropy", "entropy", 3),
        ("credit/between_sides_variance", "variance between sides", 2),
    ):
        _, values = run.logged(key)
        if len(values):
            figures[title] = f"{values[0]:,.{digits}f} → {values[-1]:,.{digits}f}"
    if run.groups:
        completions = [c for group in run.groups for c in group.completions]
        figures["recorded completions"] = f"{len(completions):,}"
        if run.has_credit:
            values = np.concatenate([c.coefficients for c in completions])
            if np.isfinite(values).any():
                low, high = np.nanquantile(values, (0.05, 0.95))
                figures["coefficients, 5–95 %"] = f"{low:.2f} – {high:.2f}"
    return {
        "name": name,
        "path": visible(str(run.path), 200),
        "figures": figures,
        "settings": main_settings(run.settings) if run.settings else {},
        "rule": rule_name(run.settings or {}),
        "has_credit": run.has_credit,
    }


def _linked(sentences: list[Sentence], places: dict[str, str]) -> list[dict]:
    """Sentences with the id of their plot, if it is not beside them."""
    return [{"text": s.text, "warning": s.warning, "plot": places.get(s.plot)} for s in sentences]


def _clouds(runs: list[Run], names: list[str], min_count: int) -> tuple[list[dict], float]:
    """The clouds of runs that have recorded token types, and the distance that gets the largest size in all."""
    found = [
        (name, frequent_types(run.token_types, min_count), average(run.token_types))
        for run, name in zip(runs, names, strict=True)
        if run.token_types
    ]
    full = max([FULL, *(farthest(types, mean) for _, types, mean in found)])
    clouds = [
        {
            "name": name,
            "types": len(types),
            "average": mean,
            "farthest": farthest(types, mean),
            "high": cloud([t for t in types if t.mean > mean], mean, full),
            "low": cloud([t for t in types if t.mean < mean], mean, full),
            "rows": [asdict(row) for row in _ends(types)],
        }
        for name, types, mean in found
    ]
    return clouds, full


def _ends(types: list) -> list:
    return types if len(types) <= 2 * TABLE_ROWS else types[:TABLE_ROWS] + types[-TABLE_ROWS:]
