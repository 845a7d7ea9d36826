"""The verdict and shaded completions in the terminal: `delta-trl inspect RUN_DIR --step 40 --terminal`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.console import Group as Stack
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..arguments.errors import UsageError
from . import MIN_COUNT, check_step
from .heatmap import background, spread
from .run import HOW_TO_RECORD, Completion, Group, read_run
from .text import visible
from .tokens import side_means, token_table
from .verdict import verdict


GROUPS = 3  # of a step; the rest is in the HTML report
TOKENS = 2_000  # of a completion


def show(
    path: str | Path,
    step: int | None = None,
    console: Console | None = None,
    *,
    relative: bool = False,
    min_count: int = MIN_COUNT,
) -> None:
    """
    Print the verdict on a run and completions of a step, winners left and losers right, with shaded tokens.

    Args:
        path (`str | Path`): A run directory.
        step (`int`, *optional*): A recorded step; the last one if not given.
        console (`rich.console.Console`, *optional*): Where to print.
        relative (`bool`, *optional*, defaults to `False`):
            Shade by the distance from the mean of the token's side instead of by the coefficient.
        min_count (`int`, *optional*, defaults to `20`): How often a token type must occur to be named.

    Raises:
        UsageError: As [`~delta_trl.report.read_run`], and if no completion was recorded (at this step).
    """
    console = console or Console()
    run = read_run(path)
    if not run.groups:
        raise UsageError(f"{path}: no completions were recorded. {HOW_TO_RECORD}.")
    if step is None:
        step = max(group.step for group in run.groups)
    check_step([run], step)
    groups = sorted((g for g in run.groups if g.step == step), key=_has_no_contrast)
    for sentence in verdict(run, token_table(run), min_count):
        warning = Text("Warning: ", "bold yellow") if sentence.warning else Text()
        console.print(warning + Text(visible(sentence.text, 1000)), highlight=False)
    means = side_means(run) if relative else {}
    groups = [_shifted(group, means) for group in groups]
    values = [c.coefficients for group in groups for c in group.completions if run.has_credit]
    full = spread(np.concatenate(values or [[]]))
    console.print(
        f"[bold]step {step}[/bold]; {len({g.step for g in run.groups})} steps were recorded", highlight=False
    )
    if run.has_credit:
        scale = [1 - full, 1 - full / 2, 1, 1 + full / 2, 1 + full]
        shown = [f" {c - 1:+.2f} " if relative else f" {c:.2f} " for c in scale]
        what = Text("from the side's mean: " if relative else "coefficient: ")
        console.print(what + Text(" ").join(Text(s, background(c, full)) for s, c in zip(shown, scale, strict=True)))
    else:
        console.print(f"No token credit here. {HOW_TO_RECORD}.")
    for group in groups[:GROUPS]:
        console.print(_group(group, full))
    if len(groups) > GROUPS:
        console.print(f"{len(groups) - GROUPS} more groups at this step: without --terminal, all are shown.")


def _shifted(group: Group, means: dict[tuple[int, int], float]) -> Group:
    """A group whose coefficients have 1 where the mean of their side is, for those sides that have one in `means`."""
    completions = [
        replace(c, coefficients=c.coefficients - means[group.step, c.side] + 1) if (group.step, c.side) in means else c
        for c in group.completions
    ]
    return replace(group, completions=completions)


def _has_no_contrast(group: Group) -> bool:
    return not any(c.side for c in group.completions)


def _group(group: Group, full: float) -> Panel:
    table = Table.grid(expand=True, padding=(0, 1))
    if _has_no_contrast(group):
        table.add_column(ratio=1, overflow="fold")
        table.add_row(Stack(*(_completion(c, full) for c in group.completions)))
    else:
        table.add_column(ratio=1, overflow="fold")
        table.add_column(ratio=1, overflow="fold")
        winners, losers, mean = (
            [_completion(c, full) for c in group.completions if c.side == side] for side in (1, -1, 0)
        )
        table.add_row(Text(f"winners ({len(winners)})", "bold"), Text(f"losers ({len(losers)})", "bold"))
        table.add_row(Stack(*winners), Stack(*losers))
        if mean:
            table = Stack(table, Text(f"at the mean ({len(mean)})", "bold"), *mean)
    return Panel(table, title=Text(visible(group.prompt, 200).replace("\n", " ")), title_align="left")


def _completion(c: Completion, full: float) -> Text:
    tokens = c.tokens()
    text = Text()
    reward = "?" if c.reward is None else f"{c.reward:.3g}"
    text.append(f"reward {reward}, advantage {c.advantage:+.2f}\n", "dim")
    limit = TOKENS if c.coefficients is not None else None
    for i, token in enumerate(tokens[:limit]):
        if c.coefficients is None:
            text.append(visible(token, 4 * TOKENS))
        else:
            text.append(visible(token), background(float(c.coefficients[i]), full))
    if limit and len(tokens) > limit:
        text.append(f" … {len(tokens) - limit:,} more tokens", "dim")
    return text.append("\n")
