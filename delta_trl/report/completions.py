"""The completions of a page: some groups, evenly over the run, with every token as HTML."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from .heatmap import Scale, tokens_html
from .reader import Completion, Group
from .text import label, visible


# The page stays at a few MB: a token and its values have about 100 bytes.
MAX_TOKENS = 40_000
MAX_GROUPS = 50
PROMPT_LIMIT = 20_000  # characters
TITLE = 80  # characters of a prompt's end
HEADINGS = {1: ("winners", "Winners"), -1: ("losers", "Losers"), 0: ("none", "At the mean")}


def shown_groups(groups: list[Group], is_step: bool) -> tuple[list[Group], int, str]:
    """
    All groups of a step, or of a run some, evenly; how many tokens of a completion the page shows; and a note on what
    it leaves out. Completions are cut if these groups, or a single one of a run, have too many tokens.
    """
    every = 1 if is_step else max(1, math.ceil(len(groups) / MAX_GROUPS))
    while not is_step and every < len(groups) and _count_tokens(groups[::every]) > MAX_TOKENS:
        every += 1
    kept = groups[::every]
    lengths = [len(c.tokens) for group in kept for c in group.completions]
    limit = max(lengths, default=0)
    notes = []
    if len(kept) < len(groups):
        notes.append(f"{len(kept):,} of {len(groups):,} recorded groups are shown here, evenly over all.")
    if sum(lengths) > MAX_TOKENS:
        limit = MAX_TOKENS // len(lengths)
        notes.append(f"Completions are cut after {limit:,} tokens here.")
    return kept, limit, " ".join(notes)


def _count_tokens(groups: list[Group]) -> int:
    return sum(len(c.tokens) for group in groups for c in group.completions)


def render_group(group: Group, limit: int, scale: Scale) -> dict[str, Any]:
    """
    A group as the page's template takes it.

    Args:
        group ([`Group`]): The group.
        limit (`int`): Tokens of a completion that are shown.
        scale ([`Scale`]): What is shaded.
    """
    sides = {side: group.of_side(side) for side in HEADINGS}
    alike = "equal outcomes" if scale.name == "advantage" else "no contrast"
    outcome = f"{len(sides[1])} winners, {len(sides[-1])} losers" if sides[1] or sides[-1] else alike
    end = " ".join(visible(group.prompt[-TITLE:], TITLE).split())
    return {
        "title": f"step {group.step} · {outcome} · {'… ' * (len(group.prompt) > TITLE)}{end}",
        "prompt": visible(group.prompt, PROMPT_LIMIT),
        "contrast": bool(sides[1] and sides[-1]),
        "sides": [
            {
                "name": HEADINGS[side][0],
                "heading": f"{HEADINGS[side][1]} ({len(completions)})",
                "completions": [
                    {"facts": _facts(c, scale), "tokens": Markup(_tokens(c, limit, scale))} for c in completions
                ],
            }
            for side, completions in sides.items()
            if completions
        ],
    }


def _facts(c: Completion, scale: Scale) -> list[str]:
    facts = [f"reward {_number(c.reward)}"]
    if len(c.rewards) > 1:
        facts += [f"{label(name)} {_number(value)}" for name, value in c.rewards]
    values = c.shaded(scale.name)
    known = values[np.isfinite(values)]
    mean = f"mean {scale.name} {known.mean():.3f}" if len(known) else "not trained"
    return [*facts, f"advantage {c.advantage:.2f}", f"{len(c.tokens):,} tokens", mean]


def _number(value: float | None) -> str:
    return "not scored" if value is None else f"{value:.3g}"


def _tokens(c: Completion, limit: int, scale: Scale) -> str:
    """Every token as HTML. With tools, a heading begins each turn, and a tool's text is not shaded."""
    changes = np.flatnonzero(np.diff(c.turns)) + 1
    if not len(changes):
        return _part(c, slice(limit), scale)
    parts = []
    for first, end in pairwise([0, *changes[changes < limit], min(limit, len(c.tokens))]):
        inside = slice(first, end)
        part = _part(c, inside, scale)
        parts.append(_heading(c, inside) + part if c.turns[first] else f"<i>{part}</i>")
    return "".join(parts)


def _heading(c: Completion, inside: slice) -> str:
    """The number of a turn, its reward if its steps have some, and its mean advantage."""
    rewards = c.step_rewards[inside]
    reward = f"reward {np.nansum(rewards):.3g}, " if np.isfinite(rewards).any() else ""
    advantage = np.nanmean(c.advantages[inside])
    return f"<strong>turn {c.turns[inside.start]}: {reward}mean advantage {advantage:+.2f}</strong>"


def _part(c: Completion, inside: slice, scale: Scale) -> str:
    columns = (c.shaded(scale.name), c.log_probs, c.entropies)
    values, *others = (column[inside].tolist() for column in columns)
    return tokens_html(c.tokens[inside], values, scale, *others)
