"""The page of an audit: one HTML file that opens offline, without scripts."""

from collections.abc import Iterable
from pathlib import Path

import jinja2
import numpy as np

from ..evaluation.store import read_samples
from ..files import write_atomically
from ..report import page as report
from ..report.heatmap import ABOVE, MAX_OPACITY, SHADES
from ..report.text import visible
from .statistics import ENOUGH, midranks
from .summary import REFERENCE, SIDES, UNIFORM, unit_scores


SHOWN = 4  # completions of each side
WINDOW = 90  # tokens of a long completion that are shown around its first mark
TEXT_LIMIT = 2000  # characters of a prompt
PLOT = 100  # side of a plot, in units of its drawing


def write_page(folder: Path, results: dict) -> Path:
    """Write `audit.html` beside the results, and return its path."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(__file__).parent, Path(report.__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    settings = results["settings"]
    shades = "\n".join(
        f".tokens .s{k} {{ background: rgb({ABOVE[0]} {ABOVE[1]} {ABOVE[2]} / {MAX_OPACITY * k / SHADES:.2f}) }}"
        for k in range(1, SHADES + 1)
    )
    marked = _marked_lines(folder, results["benchmarks"])
    hidden = ("rules", "left_out", "benchmarks", "model_name_or_path")
    html = environment.get_template("page_of_audit.html.j2").render(
        model=settings["model_name_or_path"],
        settings={name: value for name, value in settings.items() if name not in hidden and value is not None},
        rules=settings["rules"],
        versions=results["versions"],
        shades=shades,
        sides=list(SIDES),
        uniform=UNIFORM,
        benchmarks=[
            {
                "name": name,
                **one,
                "verdict": verdict(one["rules"]),
                "curves": [_plot(label, numbers, results["fractions"]) for label, numbers in one["rules"].items()],
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
    """What the intervals say, in sentences."""
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
        above = [label for label in order if found[label]["interval"][0] > 0.5]
        below = [label for label in reversed(order) if found[label]["interval"][1] < 0.5]
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


def _plot(label: str, numbers: dict, fractions: list[float]) -> dict:
    """A rule's two curves as points of a drawing."""
    curves = {
        side: " ".join(
            f"{PLOT * x:.1f},{PLOT * (1 - y):.1f}" for x, y in zip(fractions, numbers[side]["curve"], strict=True)
        )
        for side in SIDES
        if side in numbers
    }
    return {"rule": label, "curves": curves, "auc": {side: numbers[side]["auc"] for side in curves}}


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
    return {
        side: [_example(lines[i * len(lines) // SHOWN], labels) for i in range(min(SHOWN, len(lines)))]
        for side, lines in marked.items()
    }


def _example(line: dict, labels: list[str]) -> dict:
    marked = np.isin(line["unit"], line["marked"])
    first = int(marked.argmax())
    start = max(0, min(first - WINDOW // 2, len(marked) - WINDOW))
    window = range(start, min(start + WINDOW, len(marked)))
    rows = []
    for label in labels:
        scores = unit_scores(line, label)
        numbers = np.unique(line["unit"], return_inverse=True)[1]
        if np.ptp(scores):
            shade = np.round(SHADES * ((midranks(scores) - 0.5) / len(scores)) ** 2).astype(int)[numbers]
        else:
            shade = np.zeros(len(marked), dtype=int)
        tokens = [
            {"text": visible(line["tokens"][i]), "shade": int(shade[i]), "marked": bool(marked[i]),
             "score": f"{line['scores'][label][i]:.4g}"}
            for i in window
        ]  # fmt: skip
        rows.append({"rule": label, "tokens": tokens, "equal": not np.ptp(scores)})
    return {
        "prompt": visible(line["prompt"], TEXT_LIMIT),
        "reward": line["reward"],
        "advantage": line["advantage"],
        "rows": rows,
        "before": start,
        "after": len(marked) - window.stop,
    }
