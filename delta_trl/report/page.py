"""The report: one HTML file that opens offline."""

import secrets
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from ..files import write_atomically
from .completions import render_group, shown_groups
from .figures import coefficients_plot, reward_plot
from .heatmap import STYLE, Scale, legend
from .reader import HOW_TO_RECORD, Run
from .text import visible
from .verdict import verdict


# Of a run's settings, those at the head of the page
SHOWN = (
    *("model", "dataset", "token_credit", "loss_type", "learning_rate", "num_generations", "generation_batch_size"),
    *("max_completion_length", "processes", "date"),
)


def write_page(run: Run, output: Path, step: int | None) -> None:
    """See [`~delta_trl.report.write_report`]."""
    values = [c.shaded(run.shaded) for group in run.groups for c in group.completions]
    scale = Scale.of(np.concatenate([[], *values]), run.shaded)
    newest_first = sorted(run.groups, key=lambda group: -group.step)
    chosen = [group for group in newest_first if step in (None, group.step)]
    groups, limit, note = shown_groups(chosen, step is not None)
    settings = {**run.settings.get("arguments", {}), **run.settings}
    render(
        "page.html.j2",
        output,
        title=visible(run.path.resolve().name),
        style=Markup(STYLE),
        settings={name: visible(str(settings[name])) for name in SHOWN if settings.get(name) is not None},
        verdict=verdict(run),
        plots=[plot for plot in (reward_plot(run), coefficients_plot(run.tokens)) if plot],
        groups=[render_group(group, limit, scale) for group in groups],
        note=note,
        legend=Markup(legend(scale)),
        shaded=run.shaded,
        how_to_record=HOW_TO_RECORD,
    )


def render(template: str, output: Path, **values: Any) -> None:
    """Write a page of this folder's `template`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The content security policy allows only scripts with this nonce: a second defence besides escaping.
    html = environment.get_template(template).render(nonce=secrets.token_urlsafe(16), **values)
    write_atomically(html.encode(), output)
