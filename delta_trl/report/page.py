"""The report: one HTML file that opens offline."""

import secrets
from pathlib import Path

import numpy as np
from markupsafe import Markup

from ..files import write_atomically
from .completions import shown_groups
from .figures import coefficients_plot, reward_plot
from .heatmap import STYLE, legend, shades_css, spread
from .run import Run
from .templates import template
from .text import visible
from .tokens import side_means, token_table
from .verdict import HOW, RULES, verdict


RELATIVE = "#completions:has(#relative:checked) div.tokens > "  # tokens while the page's switch is on
SETTING_LIMIT = 300  # characters


def write_page(run: Run, output: Path, step: int | None) -> None:
    """See [`~delta_trl.report.write_report`]."""
    table, means = token_table(run), side_means(run)
    every = [(group.step, c) for group in run.groups for c in group.completions]
    spreads = (
        spread(np.concatenate([np.zeros(0), *(c.coefficients - 1 for _, c in every)])),
        spread(np.concatenate([np.zeros(0), *(c.coefficients - means.get((at, c.side), 1) for at, c in every)])),
    )
    groups, notes = shown_groups(run, step, spreads)
    html = template("report/page.html.j2").render(
        title=visible(run.path.resolve().name),
        # The content security policy allows only scripts with this nonce: a second defence besides escaping.
        nonce=secrets.token_urlsafe(16),
        style=Markup(f"{STYLE}\n{RELATIVE}span {{ background: none }}\n{shades_css(RELATIVE + '.r')}"),
        verdict=verdict(run, table),
        rules=[rule for rule in RULES if rule.warning],
        how=HOW,
        reward=reward_plot(run),
        settings=settings(run.settings),
        groups=groups,
        notes=notes,
        legends=[Markup(legend(spreads[0])), Markup(legend(spreads[1], relative=True))],
        coefficients=coefficients_plot(table),
    )
    write_atomically(html.encode(), output)


def settings(record: dict, prefix: str = "") -> dict[str, str]:
    """A record of settings as text, by dotted name, without those that are not set."""
    flat = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= settings(value, f"{prefix}{name}.")
        elif value not in (None, "", []):
            flat[visible(f"{prefix}{name}")] = visible(str(value), SETTING_LIMIT)
    return flat
