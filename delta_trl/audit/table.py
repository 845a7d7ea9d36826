"""The results of an audit in words and as a table, in Markdown."""

from ..evaluation.metrics import ENOUGH
from ..evaluation.results import table
from .statistics import SIDES


MARKED = {
    "losers": "the tokens at which a losing completion went wrong",
    "winners": "the tokens of a winning completion at which others of its prompt went wrong",
}


MEANING = """\
AUC: of the pairs of a labelled and another token (or step) of one response, the share in which the labelled one has
the higher weight. 0.5 is chance. The interval is over prompts; p comes from shifting the labels along each response.
▲ above and ▼ below chance: p is at most 0.05, and the interval agrees. Below, labelled tokens get less weight.
"""


def describe(benchmarks: dict[str, dict]) -> str:
    """Counts, sentences and a table of the results of each benchmark."""
    titles = ["rule", *(f"{side}: AUC (95 % interval), p" for side in SIDES)]
    parts = []
    for name, one in benchmarks.items():
        rows = [[rule, *(_cell(sides.get(side)) for side in SIDES)] for rule, sides in one["rules"].items()]
        sentences = [f"- {sentence}" for sentence in verdict(one["rules"])]
        parts += [f"## {name}", _counts(one), "\n".join(sentences), table([titles, *rows])]
    return "\n\n".join([*parts, MEANING])


def _counts(one: dict) -> str:
    """The size of a benchmark, and how much was left out."""
    left_out = "".join(f"; left out: {count:,} {reason}" for reason, count in one["left_out"].items())
    mean = one["mean_reward"]
    return f"{one['prompts']:,} prompts, {one['completions']:,} completions, mean reward {mean:.3f}{left_out}."


def verdict(rules: dict[str, dict]) -> list[str]:
    """Sentences that say which rules rank marked tokens above chance, and which below."""
    sentences = []
    for side, what in MARKED.items():
        found = {rule: sides[side] for rule, sides in rules.items() if side in sides}
        if not found:
            continue
        prompts = next(iter(found.values()))["prompts"]
        if prompts < ENOUGH:
            sentences.append(f"Only {prompts} prompts have labels on {what}: too few to judge a rule.")
            continue
        for chance, sign in (("above", -1), ("below", 1)):
            order = sorted(found, key=lambda rule: sign * found[rule]["auc"])
            named = [f"{rule} ({found[rule]['auc']:.2f})" for rule in order if found[rule]["chance"] == chance]
            if named or chance == "above":
                sentences.append(f"Rules that rank {what} {chance} chance: {', '.join(named) or 'no rule'}.")
    return sentences


def _cell(found: dict | None) -> str:
    if found is None:
        return ""
    sign = {"above": "▲ ", "below": "▼ ", "": ""}[found["chance"]]
    interval = " to ".join(f"{end:.2f}" for end in found["interval"] or ()) or "too few prompts"
    return f"{sign}{found['auc']:.3f} ({interval}), {found['p']:.3f}"
