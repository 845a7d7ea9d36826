"""The report: one HTML file that opens offline."""

import secrets
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_atomically
from .completions import evenly, shown_group, token_limit
from .figures import coefficients_plot, reward_plot
from .heatmap import Scale
from .reader import HOW_TO_RECORD, Run
from .templates import render
from .verdict import verdict


# Of a run's settings, those at the head of the page
SHOWN = (
    "model",
    "dataset",
    "token_credit",
    "loss_type",
    "learning_rate",
    "num_generations",
    "generation_batch_size",
    "max_completion_length",
    "processes",
    "date",
)


def write_report_page(run: Run, output: Path, step: int | None) -> None:
    """See [`~delta_trl.report.write_report`]."""
    values = [np.zeros(0)]
    for group in run.groups:
        values += [c.shaded(run.shaded) for c in group.completions]
    scale = Scale.of(np.concatenate(values), run.shaded)
    groups = sorted(run.groups, key=lambda group: -group.step)  # the newest first
    if step is None:
        kept = evenly(groups)
    else:
        kept = groups = [group for group in groups if group.step == step]
    limit = token_limit(kept)
    known = {**run.settings.get("arguments", {}), **run.settings}
    plots = [reward_plot(run), coefficients_plot(run.tokens)]
    write_page(
        "page.html.j2",
        output,
        title=run.path.resolve().name,
        settings={name: known[name] for name in SHOWN if known.get(name) is not None},
        verdict=verdict(run),
        plots=[plot for plot in plots if plot],
        groups=[shown_group(group, limit, scale) for group in kept],
        recorded=len(groups),
        limit=limit,
        scale=scale,
        how_to_record=HOW_TO_RECORD,
    )


def write_page(template: str, output: Path, **values: Any) -> None:
    """Write a page of this folder's `template`."""
    # The content security policy allows only scripts with this nonce: a second defence besides escaping.
    html = render(template, nonce=secrets.token_urlsafe(16), **values)
    write_atomically(html.encode(), output)
