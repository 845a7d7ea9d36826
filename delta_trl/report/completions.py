"""The completions of a page: some groups, evenly over the run, each as HTML."""

import math
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from markupsafe import Markup

from .heatmap import describe, shade, token_html
from .run import Completion, Group, Run
from .templates import template
from .text import label, visible
from .tokens import side_means


# Size of the completions in the page, in estimated bytes of compressed HTML: the file must stay below 5 MB.
# Groups are taken evenly over the run. Curves, distributions and clouds are over everything recorded.
MAX_SIZE = 1_650_000
TOKEN_SIZE = 10  # bytes of a token and its numbers; other text counts with its bytes in UTF-8
COMPLETION_SIZE = 60  # bytes of reward, advantage and so on
TEXT_LIMIT = 20_000  # characters of a prompt or of an unshaded completion
SIDES = {1: "winners", -1: "losers", 0: "none"}


@dataclass
class ShownGroup:
    """A group as the page shows it: its line in the list of groups, and its HTML."""

    title: str
    has_contrast: bool
    html: str


def shown_groups(
    run: Run, name: str, step: int | None, budget: int, spreads: tuple[float, float]
) -> tuple[list[ShownGroup], list[str]]:
    """
    The groups that the page shows, and notes on what was left out.

    Args:
        run ([`Run`]): The run.
        name (`str`): Its name, for the notes.
        step (`int`, *optional*): Only this step's groups.
        budget (`int`): How many bytes of compressed HTML they may take, estimated.
        spreads (`tuple[float, float]`): Distances that get the full colour: from 1, and from the mean of the side.
    """
    groups = [group for group in run.groups if step is None or group.step == step]
    kept, limit = _evenly(groups, run.has_credit, budget)
    notes = []
    if len(kept) < len(groups):
        where = "evenly over the run. `--step N` shows those of one step." if step is None else f"all of step {step}."
        notes.append(f"{name}: {len(kept):,} of {len(groups):,} recorded groups are shown here, {where}")
    if limit:
        unit = "tokens" if run.has_credit else "characters"
        notes.append(f"{name}: completions are cut after {limit:,} {unit} here.")
    means = side_means(run)
    shared = _shared([group.prompt for group in kept])
    return [_shown(group, means, limit, spreads, shared) for group in kept], notes


def _evenly(groups: list[Group], has_credit: bool, budget: int) -> tuple[list[Group], int | None]:
    """
    Every n-th group, with the smallest n that fits into `budget`; at least one.

    If one is still too large, each of its completions is cut, so that winners and losers stay: the second value is how
    many tokens of each (characters without token credit) are kept. Otherwise it is `None`.
    """

    def size(group: Group) -> int:
        sizes = [TOKEN_SIZE * len(c.coefficients) if has_credit else _size(c.tokens()[0]) for c in group.completions]
        return _size(group.prompt) + COMPLETION_SIZE * len(sizes) + sum(sizes)

    sizes = [size(group) for group in groups]
    stride = 1
    while sum(sizes[::stride]) > budget and stride < len(groups):
        stride += 1
    kept = groups[::stride]
    if sum(sizes[::stride]) <= budget:
        return kept, None
    share = (budget - _size(kept[0].prompt)) // len(kept[0].completions) - COMPLETION_SIZE
    return kept, max(share // TOKEN_SIZE, 1)  # a character takes at most as much as a token


def _size(text: str) -> int:
    return len(text[:TEXT_LIMIT].encode("utf-8", "surrogatepass"))


def _shown(
    group: Group, means: dict[tuple[int, int], float], limit: int | None, spreads: tuple[float, float], shared: int
) -> ShownGroup:
    sides = {side: [c for c in group.completions if c.side == side] for side in SIDES}
    won, lost = len(sides[1]), len(sides[-1])
    headings = {
        1: f"Winners ({won})",
        -1: f"Losers ({lost})",
        0: "At the mean" if won or lost else "No contrast: equal rewards, nothing to learn",
    }
    html = template("report/group.html.j2").render(
        step=group.step,
        prompt=visible(group.prompt, TEXT_LIMIT),
        # a side with twice as many gets twice the width
        more="winners" if won >= 2 * lost else "losers" if lost >= 2 * won else "",
        sides=[
            {
                "name": SIDES[side],
                "heading": headings[side],
                "completions": [_card(c, means.get((group.step, side)), limit, spreads) for c in some],
            }
            for side, some in sides.items()
            if some
        ],
    )
    outcome = f"{won} winners, {lost} losers" if won or lost else "no contrast"
    prompt = " ".join(visible(group.prompt[shared : shared + 80], 80).split())
    return ShownGroup(f"step {group.step} · {outcome} · {'… ' * bool(shared)}{prompt}", bool(won and lost), html)


def _shared(prompts: list[str]) -> int:
    """The length of what all prompts begin with, as whole words: a system message, examples. 0 if all are the same."""
    same = takewhile(lambda characters: len(set(characters)) == 1, zip(*prompts, strict=False))
    common = "".join(characters[0] for characters in same)
    return 0 if common in prompts else 1 + max(common.rfind(space) for space in " \n")


def _card(c: Completion, mean: float | None, limit: int | None, spreads: tuple[float, float]) -> dict:
    facts = [f"reward {_number(c.reward)}"]
    if len(c.rewards) > 1:
        facts += [f"{label(name)} {_number(value)}" for name, value in c.rewards.items()]
    facts.append(f"advantage {c.advantage:.2f}")
    if c.coefficients is None:
        return {"facts": facts, "is_shaded": False, "body": visible(c.tokens()[0], limit or TEXT_LIMIT)}
    known = c.coefficients[np.isfinite(c.coefficients)]
    facts += [f"{len(c.coefficients):,} tokens", f"mean coefficient {known.mean():.3f}" if len(known) else "no credit"]
    if mean is not None:
        facts.append(f"mean of its side {mean:.3f}")
    columns = (array[:limit].tolist() for array in (c.coefficients, c.log_probs, c.entropies))
    return {"facts": facts, "is_shaded": True, "body": _tokens(c.tokens()[:limit], *columns, mean, spreads)}


def _number(value: float | None) -> str:
    return "not scored" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _tokens(
    tokens: list[str],
    coefficients: list[float],
    log_probs: list[float],
    entropies: list[float],
    mean: float | None,
    spreads: tuple[float, float],
) -> Markup:
    """Tokens with two shades each, of which the page's style shows one: from 1, and from the mean of the side."""
    middle = 1.0 if mean is None else mean
    html = []
    for token, c, log_prob, entropy in zip(tokens, coefficients, log_probs, entropies, strict=True):
        relative = shade(c, spreads[1], middle)
        classes = f"{shade(c, spreads[0])} {relative and 'r' + relative}"
        html.append(token_html(token, classes, describe(c, log_prob, entropy)))
    return Markup("".join(html))
