"""The report: one HTML file that opens offline."""

import secrets
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments.errors import UsageError
from ..files import write_atomically
from .completions import HEADINGS, evenly, parts_of, token_limit
from .figures import coefficients_plot, reward_plot
from .heatmap import Scale
from .reader import HOW_TO_RECORD, read_run
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


def write_report(
    run: str | Path, output: str | Path, *, step: int | None = None, settings: dict | None = None
) -> Path:
    """
    Write what a run has recorded as one HTML file that opens offline.

    Args:
        run (`str | Path`): A run directory.
        output (`str | Path`): The HTML file.
        step (`int`, *optional*): Show all groups of this step, instead of some of the whole run.
        settings (`dict`, *optional*): For the head of the page, in place of those that the run recorded.

    Returns:
        `Path`: The HTML file.

    Raises:
        UsageError: If the run has nothing to show or no such step, or if a file cannot be read.
        OSError: If the HTML file cannot be written.
    """
    recorded = read_run(run)
    values = [c.shaded(recorded.shaded) for c in recorded.completions]
    scale = Scale.of(np.concatenate([[], *values]).tolist(), recorded.shaded)
    groups = sorted(recorded.groups, key=lambda group: -group.step)  # the newest first
    if step is None:
        kept = evenly(groups)
    else:
        kept = groups = [group for group in groups if group.step == step]
        if not kept:
            steps = sorted({group.step for group in recorded.groups})
            raise UsageError(f"--step {step}: completions were recorded at {', '.join(map(str, steps)) or 'no step'}.")
    limit = token_limit(kept)
    settings = settings or recorded.settings
    flat = {**settings.get("arguments", {}), **settings}
    plots = [reward_plot(recorded), coefficients_plot(recorded.tokens)]
    output = Path(output)
    write_page(
        "page.html.j2",
        output,
        title=recorded.path.resolve().name,
        settings={name: flat[name] for name in SHOWN if flat.get(name) is not None},
        verdict=verdict(recorded),
        plots=[plot for plot in plots if plot],
        groups=kept,
        recorded=len(groups),
        headings=HEADINGS,
        parts_of=parts_of,
        limit=limit,
        scale=scale,
        how_to_record=HOW_TO_RECORD,
    )
    return output


def write_page(template: str, output: Path, **values: Any) -> None:
    """Write a page of this folder's `template`."""
    # The content security policy allows only scripts with this nonce: a second defence besides escaping.
    html = render(template, nonce=secrets.token_urlsafe(16), **values)
    write_atomically(html.encode(), output)
