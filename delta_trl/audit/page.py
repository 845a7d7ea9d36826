"""The page of an audit: one HTML file that opens offline, without scripts."""

from html import escape

import numpy as np

from ..evaluation.metrics import ENOUGH
from ..report.text import visible
from .statistics import SIDES, ranks, unit_scores


SHOWN = 3  # completions of each side
WINDOW = 90  # tokens of a long completion that are shown around its first mark
TEXT_LIMIT = 2000  # characters of a prompt
MARKED = {
    "losers": "the tokens at which losing completions went wrong",
    "winners": "the tokens of winning completions at which others of the same prompt went wrong",
}
STYLE = """
:root { color-scheme: light dark; --above: 38 118 184; --below: 224 122 10; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1rem; }
main { overflow-wrap: anywhere; }
html { background: #fff; color: #1a1a1a; }
@media (prefers-color-scheme: dark) { html { background: #16181c; color: #eee; } }
table { border-collapse: collapse; }
th, td { padding: .2rem .7rem; text-align: left; }
tbody tr { border-top: 1px solid rgb(128 128 128 / .3); }
td.above { background: rgb(var(--above) / .2); }
td.below { background: rgb(var(--below) / .3); }
dl { display: grid; grid-template-columns: minmax(6rem, 14rem) minmax(0, 1fr); gap: .3rem .8rem; }
dt, dd, p { margin: 0; }
dd, .prompt { white-space: pre-wrap; }
article { margin: 1rem 0; padding: .6rem; border: 1px solid rgb(128 128 128 / .4); border-radius: 6px; }
dd span, dd mark { background: rgb(var(--above) / calc(.6 * var(--rank, 0))); color: inherit; }
mark { outline: 2px solid rgb(var(--below)); font-weight: 700; }
@media (max-width: 600px) { dl { grid-template-columns: 1fr; } th, td { padding: .2rem; } }
"""


def page(results: dict, lines: dict[str, list[dict]]) -> str:
    """The HTML of the results, with some completions of `lines`, the scored completions of each benchmark."""
    model = escape(results["settings"]["model_name_or_path"])
    body = "".join(_benchmark(name, one, lines[name]) for name, one in results["benchmarks"].items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{model} · token credit audit</title><link rel="icon" href="data:,"><style>{STYLE}</style></head><body><main>
<h1>Token credit audit · <bdi>{model}</bdi></h1>
<p>Does a rule of token credit find the tokens that decided a response? The AUC is the share of pairs in which it ranks
such a token above another one of the same response: 0.5 is chance. Below chance, it ranks low what it should find.</p>
{body}</main></body></html>
"""


def _benchmark(name: str, one: dict, lines: list[dict]) -> str:
    head = "".join(f'<th scope="col">{side}: AUC (95 % interval), p</th>' for side in SIDES)
    table = "".join(
        f'<tr><th scope="row">{escape(rule)}</th>{"".join(_cell(sides.get(side)) for side in SIDES)}</tr>'
        for rule, sides in one["rules"].items()
    )
    return f"""<section><h2>{escape(name)}</h2><p>{escape(counts(one))}</p>
<ul>{"".join(f"<li>{escape(sentence)}</li>" for sentence in verdict(one["rules"]))}</ul>
<table><thead><tr><th scope="col">rule</th>{head}</tr></thead><tbody>{table}</tbody></table>
<p>p is of one rule at a time: of twenty rules without any effect, one is expected below 0.05.</p>
{"".join(_examples(side, lines, list(one["rules"])) for side in SIDES)}</section>
"""


def counts(one: dict) -> str:
    """What a benchmark's numbers are of, and what was left out."""
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
        if (prompts := next(iter(found.values()))["prompts"]) < ENOUGH:
            sentences.append(f"Too few prompts, {prompts}, have labels to say which rules find {what}.")
            continue
        for chance, sign in (("above", -1), ("below", 1)):
            order = sorted(found, key=lambda rule: sign * found[rule]["auc"])
            named = [f"{rule} ({found[rule]['auc']:.2f})" for rule in order if found[rule]["chance"] == chance]
            if named or chance == "above":
                sentences.append(f"These rank {what} {chance} chance: {', '.join(named) or 'none'}.")
    return sentences


def _cell(found: dict | None) -> str:
    if found is None:
        return "<td></td>"
    sign = {"above": "▲ ", "below": "▼ below chance: ", "": ""}[found["chance"]]
    interval = " to ".join(f"{end:.2f}" for end in found["interval"] or ()) or "too few prompts"
    return f'<td class="{found["chance"]}">{sign}<b>{found["auc"]:.3f}</b> ({interval}), {found["p"]:.3f}</td>'


def _examples(side: str, lines: list[dict], rules: list[str]) -> str:
    """Some completions of a side that have marks, evenly over the audit."""
    marked = [line for line in lines if line["marked"] and np.sign(line["advantage"]) == SIDES[side]]
    if not marked:
        return ""
    shown = "".join(_example(marked[i * len(marked) // SHOWN], rules) for i in range(min(SHOWN, len(marked))))
    return f"<h3>{side}</h3><p>Outlined: {MARKED[side]}. The darker, the higher a rule ranks a token.</p>{shown}"


def _example(line: dict, rules: list[str]) -> str:
    marked = np.isin(line["unit"], line["marked"])
    start = max(0, min(int(marked.argmax()) - WINDOW // 2, len(marked) - WINDOW))
    end = min(start + WINDOW, len(marked))
    units = np.unique(line["unit"], return_inverse=True)[1]
    rows = []
    for rule in rules:
        scores = unit_scores(line, rule)
        # squared, so that only the highest are dark
        darkness = ((ranks(scores) - 0.5) / len(scores)) ** 2 * (np.ptp(scores) > 0)
        tokens = []
        for i in range(start, end):
            tag = "mark" if marked[i] else "span"
            rank, text = darkness[units[i]], escape(visible(line["tokens"][i]))
            tokens.append(f'<{tag} style="--rank:{rank:.2f}">{text}</{tag}>')
        rows.append(
            f"<dt>{escape(rule)}</dt><dd>{'… ' * (start > 0)}{''.join(tokens)}{' …' * (end < len(marked))}</dd>"
        )
    prompt = f'<bdi class="prompt">{escape(visible(line["prompt"], TEXT_LIMIT))}</bdi>'
    return f"<article><p>reward {line['reward']:g}: {prompt}</p><dl>{''.join(rows)}</dl></article>"
