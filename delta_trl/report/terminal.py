"""The verdict and shaded completions in the terminal: `delta-trl inspect RUN_DIR --step 40 --terminal`."""

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.console import Group as Stack
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..arguments.errors import UsageError
from . import MIN_COUNT, check_step
from .heatmap import shade, spread, token_text
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
    middles = {side: mean for (at, side), mean in side_means(run).items() if at == step} if relative else {}
    completions = [c for group in groups for c in group.completions if run.has_credit]
    full = spread(np.concatenate([np.zeros(0), *(c.coefficients - middles.get(c.side, 1.0) for c in completions)]))
    console.print(
        f"[bold]step {step}[/bold]; {len({g.step for g in run.groups})} steps were recorded", highlight=False
    )
    if run.has_credit:
        scale = [-full, -full / 2, 0, full / 2, full]
        cells = [token_text(f" {d:+.2f} " if relative else f" {1 + d:.2f} ", shade(d, full, middle=0)) for d in scale]
        console.print(Text("from the side's mean: " if relative else "coefficient: ") + Text(" ").join(cells))
    else:
        console.print(f"No token credit here. {HOW_TO_RECORD}.")
    for group in groups[:GROUPS]:
        console.print(_group(group, full, middles))
    if len(groups) > GROUPS:
        console.print(f"{len(groups) - GROUPS} more groups at this step: without --terminal, all are shown.")


def _has_no_contrast(group: Group) -> bool:
    return not any(c.side for c in group.completions)


def _group(group: Group, full: float, middles: dict[int, float]) -> Panel:
    sides = {side: [_completion(c, full, middles) for c in group.completions if c.side == side] for side in (1, -1, 0)}
    title = Text(visible(group.prompt, 200).replace("\n", " "))
    if _has_no_contrast(group):
        return Panel(Stack(*sides[0]), title=title, title_align="left")
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(ratio=1, overflow="fold")
    table.add_column(ratio=1, overflow="fold")
    table.add_row(Text(f"winners ({len(sides[1])})", "bold"), Text(f"losers ({len(sides[-1])})", "bold"))
    table.add_row(Stack(*sides[1]), Stack(*sides[-1]))
    at_the_mean = [Text(f"at the mean ({len(sides[0])})", "bold"), *sides[0]] if sides[0] else []
    return Panel(Stack(table, *at_the_mean), title=title, title_align="left")


def _completion(c: Completion, full: float, middles: dict[int, float]) -> Text:
    """A completion, shaded by the distance of its coefficients from the mean of its side, or from 1."""
    reward = "?" if c.reward is None else f"{c.reward:.3g}"
    text = Text(f"reward {reward}, advantage {c.advantage:+.2f}\n", "dim")
    tokens = c.tokens()
    if c.coefficients is None:
        return Text.assemble(text, visible(tokens[0], 4 * TOKENS), "\n")
    shades = [shade(float(value), full, middles.get(c.side, 1.0)) for value in c.coefficients[:TOKENS]]
    left_out = (f" … {len(tokens) - TOKENS:,} more tokens", "dim") if len(tokens) > TOKENS else ""
    return Text.assemble(text, *map(token_text, tokens, shades), left_out, "\n")
