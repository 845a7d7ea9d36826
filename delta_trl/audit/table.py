"""The results of an audit as a table, in Markdown."""

from ..evaluation.results import interval, table
from .statistics import SIDES


POSITION = "position, earlier first"  # a row that is no rule
SIGNS = {"above": "▲ ", "below": "▼ ", "": ""}
MEANING = """\
Labelled are, in losers, the tokens at which they went wrong, and in winners, those at which others of the prompt did.
AUC: of the pairs of a labelled and another token (or step) of one response, the share in which the labelled one has
the higher weight. 0.5 is chance. The interval is over prompts; p comes from shifting the labels along each response.
▲ above and ▼ below chance: p is at most 0.05, and the interval agrees. Below, labelled tokens get less weight.
▲ alone does not show that a rule reads the tokens: where labels stand early or late, the position alone earns it. The
last row knows nothing else. What a rule knows beyond positions is what it has beyond that row, or its mirror image.
"""


def describe(benchmarks: dict[str, dict]) -> str:
    """Counts and a table of the results of each benchmark, and what the numbers mean."""
    titles = [f"{side}: AUC (95 % interval), p" for side in SIDES]
    parts = []
    for name, results in benchmarks.items():
        rows = [["rule", *titles]]
        for rule, sides in results["rules"].items():
            cells = [_cell(sides.get(side)) for side in SIDES]
            rows.append([rule, *cells])
        parts.append(f"## {name}")
        parts.append(_counts(results))
        parts.append(table(rows))
    return "\n\n".join([*parts, MEANING])


def _counts(results: dict) -> str:
    """The size of a benchmark, and how much was left out."""
    sizes = "{prompts:,} prompts, {completions:,} completions, mean reward {mean_reward:.3f}".format(**results)
    left_out = [f"; left out: {count:,} {reason}" for reason, count in results["left_out"].items()]
    return f"{sizes}{''.join(left_out)}."


def _cell(numbers: dict | None) -> str:
    if numbers is None:
        return ""
    auc = numbers["auc"]
    p = numbers["p"]
    sign = SIGNS[numbers["chance"]]
    ends = "too few prompts"
    if numbers["interval"]:
        ends = interval(numbers["interval"])
    shown = "< 0.001" if p < 0.001 else f"{p:.3f}"
    return f"{sign}{auc:.3f} ({ends}), {shown}"
