"""The completions of a page: some groups, evenly over the run, with every token as the page shows it."""

from typing import Any

import numpy as np

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
    while len(kept) > 1 and (len(kept) > MAX_GROUPS or sum(token_counts(kept)) > MAX_TOKENS):
        every += 1
        kept = groups[::every]
    return kept


def token_counts(groups: list[Group]) -> list[int]:
    """The number of tokens of each completion."""
    counts = []
    for group in groups:
        counts += [len(c.tokens) for c in group.completions]
    return counts


def token_limit(groups: list[Group]) -> int | None:
    """How many tokens of a completion the page shows; `None` if there is room for all."""
    counts = token_counts(groups)
    return MAX_TOKENS // len(counts) if sum(counts) > MAX_TOKENS else None


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
    shaded = c.shaded(scale.name)
    places = np.arange(len(c.tokens[:limit]))
    changes = np.flatnonzero(np.diff(c.turns[:limit])) + 1
    parts = [shown_part(c, inside, shaded, scale) for inside in np.split(places, changes)]
    return {"completion": c, "mean": mean_of(shaded), "parts": parts}


def shown_part(c: Completion, inside: np.ndarray, shaded: np.ndarray, scale: Scale) -> dict[str, Any]:
    """
    The number of a turn, 0 for a tool's text; its reward if its steps have some; its mean advantage; its tokens, those
    at the places `inside`.
    """
    columns = [column[inside].tolist() for column in (shaded, c.log_probs, c.entropies)]
    values, *others = columns
    rewards = c.step_rewards[inside]
    return {
        "turn": c.turns[inside].max(initial=0),
        "reward": np.nansum(rewards) if np.isfinite(rewards).any() else None,
        "advantage": mean_of(c.advantages[inside]),
        "tokens": shaded_tokens(c.tokens[inside], values, scale, *others),
    }


def mean_of(values: np.ndarray) -> float | None:
    """The mean of the known values, `None` if there are none."""
    known = values[np.isfinite(values)]
    return known.mean() if len(known) else None
