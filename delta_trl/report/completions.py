"""The completions of a page: some groups, evenly over the run, with every token as the page shows it."""

from itertools import groupby
from typing import Any

import pandas as pd

from .heatmap import Scale, shaded_tokens
from .reader import Completion, Group, completions_of


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
    return len(groups) <= MAX_GROUPS and token_limit(groups) is None


def token_limit(groups: list[Group]) -> int | None:
    """How many tokens of a completion the page shows; `None` if there is room for all."""
    counts = [len(c.tokens) for c in completions_of(groups)]
    if sum(counts) <= MAX_TOKENS:
        return None
    return MAX_TOKENS // len(counts)


def parts_of(c: Completion, limit: int | None, scale: Scale) -> list[dict[str, Any]]:
    """
    The turns and the tools' texts of a completion, in order.

    Args:
        c ([`Completion`]): The completion.
        limit (`int`, *optional*): How many of its tokens are shown.
        scale ([`Scale`]): What is shaded.

    Returns:
        `list[dict]`: Of each, the number of the `turn`, 0 for a tool's text; its `reward` and its mean `advantage`,
        NaN if none are known; its shaded `tokens`.
    """
    turns = c.turns[:limit].tolist()
    parts = []
    for turn, numbers in groupby(range(len(turns)), key=turns.__getitem__):
        places = list(numbers)
        values = c.shaded(scale.name)[places].tolist()
        log_probs = c.log_probs[places].tolist()
        entropies = c.entropies[places].tolist()
        part = {
            "turn": turn,
            "reward": pd.Series(c.step_rewards[places]).sum(min_count=1),
            "advantage": pd.Series(c.advantages[places]).mean(),
            "tokens": shaded_tokens(c.tokens[places].tolist(), values, scale, log_probs, entropies),
        }
        parts.append(part)
    return parts
