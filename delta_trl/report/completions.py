"""The completions of a page: some groups, evenly over the run, with every token as HTML."""

import math
from typing import Any

import numpy as np
from markupsafe import Markup

from .heatmap import describe, shade, token_html
from .run import Completion, Group, Run
from .text import label, visible
from .tokens import side_means


# Estimated size of the completions in the page, which must stay below 5 MB. Groups are taken evenly over the run.
MAX_SIZE = 4_500_000
TOKEN_SIZE = 100  # bytes of a token and its numbers; prompts count with their bytes in UTF-8
COMPLETION_SIZE = 400  # bytes of reward, advantage and so on
PROMPT_LIMIT = 20_000  # characters
TITLE = 80  # characters of a prompt's end
HEADINGS = {1: ("winners", "Winners"), -1: ("losers", "Losers"), 0: ("none", "At the mean")}


def shown_groups(run: Run, step: int | None, spreads: tuple[float, float]) -> tuple[list[dict[str, Any]], list[str]]:
    """
    The groups that the page shows, as its template takes them, and notes on what was left out.

    Args:
        run ([`Run`]): The run.
        step (`int`, *optional*): Only this step's groups.
        spreads (`tuple[float, float]`): Distances that get the full colour: from 1, and from the mean of the side.
    """
    groups = [group for group in run.groups if step is None or group.step == step]
    kept, limit = _evenly(groups)
    notes = []
    if len(kept) < len(groups):
        where = "evenly over the run; `--step N` shows those of one step" if step is None else f"all of step {step}"
        notes.append(f"{len(kept):,} of {len(groups):,} recorded groups are shown here, {where}.")
    if limit:
        notes.append(f"Completions are cut after {limit:,} tokens here.")
    means = side_means(run)
    opened = next((group for group in kept if group.of_side(1) and group.of_side(-1)), kept[0] if kept else None)
    return [{**_shown(group, means, limit, spreads), "open": group is opened} for group in kept], notes


def _evenly(groups: list[Group]) -> tuple[list[Group], int | None]:
    """
    Every n-th group, with the smallest n that fits into `MAX_SIZE`; at least one.

    If one is still too large, each of its completions is cut, so that winners and losers stay: the second value is how
    many tokens of each are kept. Otherwise it is `None`.
    """

    def prompt_size(group: Group) -> int:
        return len(group.prompt[:PROMPT_LIMIT].encode("utf-8", "surrogatepass"))

    sizes = [
        prompt_size(group) + sum(COMPLETION_SIZE + TOKEN_SIZE * len(c.coefficients) for c in group.completions)
        for group in groups
    ]
    stride = 1
    while sum(sizes[::stride]) > MAX_SIZE and stride < len(groups):
        stride += 1
    kept = groups[::stride]
    if sum(sizes[::stride]) <= MAX_SIZE:
        return kept, None
    share = (MAX_SIZE - prompt_size(kept[0])) // len(kept[0].completions) - COMPLETION_SIZE
    return kept, max(share // TOKEN_SIZE, 1)


def _shown(
    group: Group, means: dict[tuple[int, int], float], limit: int | None, spreads: tuple[float, float]
) -> dict[str, Any]:
    won, lost = len(group.of_side(1)), len(group.of_side(-1))
    outcome = f"{won} winners, {lost} losers" if won or lost else "no contrast"
    prompt = visible(group.prompt, PROMPT_LIMIT)
    end = " ".join(visible(group.prompt[-TITLE:], TITLE).split())
    return {
        "title": f"step {group.step} · {outcome} · {'… ' * (len(group.prompt) > TITLE)}{end}",
        "prompt": prompt,
        "sides": [
            {
                "name": name,
                "heading": f"{heading} ({len(group.of_side(side))})",
                "completions": [_card(c, means.get((group.step, side)), limit, spreads) for c in group.of_side(side)],
            }
            for side, (name, heading) in HEADINGS.items()
            if group.of_side(side)
        ],
    }


def _card(c: Completion, mean: float | None, limit: int | None, spreads: tuple[float, float]) -> dict[str, Any]:
    facts = [f"reward {_number(c.reward)}"]
    if len(c.rewards) > 1:
        facts += [f"{label(name)} {_number(value)}" for name, value in c.rewards.items()]
    facts.append(f"advantage {c.advantage:.2f}")
    known = c.coefficients[np.isfinite(c.coefficients)]
    facts += [f"{len(c.coefficients):,} tokens", f"mean coefficient {known.mean():.3f}" if len(known) else "no credit"]
    if mean is not None:
        facts.append(f"mean of its side {mean:.3f}")
    return {"facts": facts, "tokens": _tokens(c, mean, limit, spreads)}


def _number(value: float | None) -> str:
    return "not scored" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _tokens(c: Completion, mean: float | None, limit: int | None, spreads: tuple[float, float]) -> Markup:
    """Tokens with two shades each, of which the page's style shows one: from 1, and from the mean of the side."""
    middle = 1.0 if mean is None else mean
    html = []
    columns = (array[:limit].tolist() for array in (c.coefficients, c.log_probs, c.entropies))
    for token, value, log_prob, entropy in zip(c.tokens()[:limit], *columns, strict=True):
        relative = shade(value, spreads[1], middle)
        classes = f"{shade(value, spreads[0])} {relative and 'r' + relative}".strip()
        html.append(token_html(token, classes, describe(value, log_prob, entropy)))
    return Markup("".join(html))
