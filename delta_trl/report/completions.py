"""The completions of a page: some groups, evenly over the run, with every token as the page shows it."""

from itertools import groupby
from typing import Any

import pandas as pd

from .heatmap import Scale, shaded_tokens
from .reader import Completion, Group


# The page stays at a few MB: a token and its values have about 100 bytes.
MAX_TOKENS = 40_000
MAX_GROUPS = 50
HEADINGS = {1: "Winners", -1: "Losers", 0: "At the mean"}  # by side


def evenly(groups: list[Group]) -> list[Group]:
    """As many groups as the page has room for, evenly over all; one at least."""
    kept = groups
    every = 1
    while len(kept) > 1 and not has_room(kept):
        every += 1
        kept = groups[::every]
    return kept


def has_room(groups: list[Group]) -> bool:
    tokens = sum(token_counts(groups))
    return len(groups) <= MAX_GROUPS and tokens <= MAX_TOKENS


def token_counts(groups: list[Group]) -> list[int]:
    """The number of tokens of each completion."""
    counts = []
    for group in groups:
        counts += [len(c.tokens) for c in group.completions]
    return counts


def token_limit(groups: list[Group]) -> int | None:
    """How many tokens of a completion the page shows; `None` if there is room for all."""
    counts = token_counts(groups)
    if sum(counts) <= MAX_TOKENS:
        return None
    return MAX_TOKENS // len(counts)


def shown_group(group: Group, limit: int | None, scale: Scale) -> dict[str, Any]:
    """
    A group as the page's template takes it.

    Args:
        group ([`Group`]): The group.
        limit (`int`, *optional*): Tokens of a completion that are shown.
        scale ([`Scale`]): What is shaded.
    """
    sides = {}
    for side, heading in HEADINGS.items():
        completions = [shown_completion(c, limit, scale) for c in group.of_side(side)]
        if completions:
            sides[heading] = completions
    return {"group": group, "sides": sides}


def shown_completion(c: Completion, limit: int | None, scale: Scale) -> dict[str, Any]:
    """A completion as the page's template takes it: its mean, and its parts, which are turns and tools' texts."""
    turns = c.turns[:limit].tolist()
    parts = []
    for turn, places in groupby(range(len(turns)), key=turns.__getitem__):
        parts.append(shown_part(c, turn, list(places), scale))
    return {
        "completion": c,
        "mean": pd.Series(c.shaded(scale.name)).mean(),  # NaN if no value is known
        "parts": parts,
    }


def shown_part(c: Completion, turn: int, places: list[int], scale: Scale) -> dict[str, Any]:
    """
    The number of a turn, 0 for a tool's text; its reward and its mean advantage, NaN if none are known; its tokens.
    """
    values = c.shaded(scale.name)[places].tolist()
    log_probs = c.log_probs[places].tolist()
    entropies = c.entropies[places].tolist()
    return {
        "turn": turn,
        "reward": pd.Series(c.step_rewards[places]).sum(min_count=1),
        "advantage": pd.Series(c.advantages[places]).mean(),
        "tokens": shaded_tokens(c.tokens[places], values, scale, log_probs, entropies),
    }
