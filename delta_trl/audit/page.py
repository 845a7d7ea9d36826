"""The page of an audit: one HTML file that opens offline, without scripts."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from markupsafe import Markup

from ..evaluation.metrics import ENOUGH
from ..evaluation.store import read_samples
from ..files import write_atomically
from ..report.heatmap import STYLE, shade, token_html
from ..report.templates import template
from ..report.text import visible
from .statistics import SIGNIFICANT, percentiles
from .summary import REFERENCE, SIDES, UNIFORM, unit_scores


SHOWN = 4  # completions of each side
WINDOW = 90  # tokens of a long completion that are shown around its first mark
TEXT_LIMIT = 2000  # characters of a prompt


def write_page(folder: Path, results: dict) -> Path:
    """Write `audit.html` beside the results, and return its path."""
    settings = results["settings"]
    marked = _marked_lines(folder, results["benchmarks"])
    hidden = ("rules", "left_out", "benchmarks", "model_name_or_path")
    html = template("audit/page_of_audit.html.j2").render(
        model=settings["model_name_or_path"],
        settings={name: value for name, value in settings.items() if name not in hidden and value is not None},
        rules=settings["rules"],
        versions=results["versions"],
        style=STYLE,
        sides=list(SIDES),
        uniform=UNIFORM,
        benchmarks=[
            {
                "name": name,
                **one,
                "verdict": verdict(one["rules"]),
                "examples": _examples(marked[name], list(settings["rules"])),
                "has_gradient": "gradient" in one["rules"][UNIFORM],
            }
            for name, one in results["benchmarks"].items()
        ],
    )
    output = folder / "audit.html"
    write_atomically(html.encode(), output)
    return output


def verdict(rules: dict[str, dict]) -> list[str]:
    """Sentences that say which intervals exclude chance, and which gradients are closer to the reference."""
    sentences = []
    names = {
        "losers": "the tokens at which losers went wrong",
        "winners": "the tokens of winners at which siblings failed",
    }
    for side, what in names.items():
        found = {label: numbers[side] for label, numbers in rules.items() if side in numbers}
        if not found:
            continue
        prompts = next(iter(found.values()))["prompts"]
        if prompts < ENOUGH:
            sentences.append(
                f"{side.capitalize()} of {prompts} prompts have labels: too few to say what finds {what}."
            )
            continue
        order = sorted(found, key=lambda label: -found[label]["auc"])
        certain = [label for label in order if found[label]["p"] <= SIGNIFICANT]
        above = [label for label in certain if found[label]["auc"] > 0.5]
        below = [label for label in reversed(certain) if found[label]["auc"] < 0.5]
        sentences.append(f"Rank {what} high: {_listed(above, found) or 'none'}.")
        if below:
            sentences.append(f"Rank them low, against their purpose: {_listed(below, found)}.")
    gradients = {label: n["gradient"] for label, n in rules.items() if "gradient" in n and label != UNIFORM}
    better = [label for label, g in gradients.items() if (g["difference_interval"] or [0])[0] > 0]
    worse = [label for label, g in gradients.items() if (g["difference_interval"] or [0, 0])[1] < 0]
    if gradients:
        sentences.append(
            "One rollout batch's gradient lies closer to the reference than uniform credit's under "
            f"{', '.join(better) or 'no rule'}, and farther under {', '.join(worse) or 'none'}."
        )
    return sentences


def _listed(labels: list[str], found: dict[str, dict]) -> str:
    return ", ".join(f"{label} ({found[label]['auc']:.2f})" for label in labels)


def _marked_lines(folder: Path, names: Iterable[str]) -> dict[str, dict[str, list[dict]]]:
    """The completions of each benchmark and side that have marks."""
    found: dict[str, dict[str, list[dict]]] = {name: {side: [] for side in SIDES} for name in names}
    for line in read_samples(folder):
        if not line.get(REFERENCE) and line["marked"]:
            for side, sign in SIDES.items():
                if np.sign(line["advantage"]) == sign:
                    found[line["benchmark"]][side].append(line)
    return found


def _examples(marked: dict[str, list[dict]], labels: list[str]) -> dict[str, list[dict]]:
    """Some completions of each side, evenly over the audit."""
    examples = {}
    for side, lines in marked.items():
        count = min(SHOWN, len(lines))
        examples[side] = [_example(lines[i * len(lines) // count], labels) for i in range(count)]
    return examples


def _example(line: dict, labels: list[str]) -> dict:
    marked = np.isin(line["unit"], line["marked"])
    first = int(marked.argmax())
    start = max(0, min(first - WINDOW // 2, len(marked) - WINDOW))
    window = range(start, min(start + WINDOW, len(marked)))
    units = np.unique(line["unit"], return_inverse=True)[1]
    rows = []
    for label in labels:
        scores = unit_scores(line, label)
        equal = not np.ptp(scores)
        # squared, so that only the highest are dark
        heights = np.zeros(len(scores)) if equal else percentiles(scores) ** 2
        tokens = (
            token_html(
                line["tokens"][i],
                shade(heights[units[i]], full=1, middle=0),
                f"score {line['scores'][label][i]:.4g}",
                tag="mark" if marked[i] else "span",
            )
            for i in window
        )
        rows.append({"rule": label, "tokens": Markup("".join(tokens)), "equal": equal})
    return {
        "prompt": visible(line["prompt"], TEXT_LIMIT),
        "reward": line["reward"],
        "advantage": line["advantage"],
        "rows": rows,
        "before": start,
        "after": len(marked) - window.stop,
    }
