"""Tables and pictures of scripts/studies/study.py --report: one page for each study."""

import json
import math
from pathlib import Path

from .answers import answers, difference, p_value
from .pictures import draw_curves, draw_differences
from .plans import ALL, Study
from .statistics import FAMILIES, summarise


HOW_TO_READ = """\
Written by `python -m scripts.studies.study --study {name} --report` from `scripts/studies/results/{name}.jsonl`, which
has one row for each finished run; what the tables of comparisons are made of is in `{stem}.json`, with Wilcoxon's p
and all digits. What it says:
[the study's page]({page}).

± and intervals are 95 % (Student's t over seeds). Comparisons are paired by seed: mean difference ± 95 %, then p of a
paired t-test after Holm's correction over the variants of that column, then the smallest true difference that this
test finds four times in five at p < 0.05 without correction, given the spread that was seen. **Bold**: corrected p <
0.01. Where runs of the pair collapsed, the difference on the other seeds follows. "{pooled}" has all pairs of task
and seed, without adapters, over the tasks on which the variant ran: of these tasks, not of others. "Clipped" is the
share of optimiser steps whose gradient was scaled down to norm 1. A run has collapsed if its accuracy is below that
before training, or its reward in the end (mean of 3 rollout batches) below half of the best it had. "Entropy": of
tokens in the last quarter of the run, in nats.
"""


def number(value: float, digits: int = 3) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def table(header: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines)) + "\n"


def cells_table(entries: list[dict], outcomes: dict[str, str]) -> str:
    last = [] if "entropy" in outcomes else ["entropy"]
    header = ["variant", "learning rate", "seeds", *outcomes, "collapsed", "weight of winners", "of losers"]
    lines = [
        [
            e["variant"],
            f"{e['learning_rate']:g}",
            str(e["seeds"]),
            *(f"{e[name]:.3f} ± {number(e[f'{name}_half_width'])}".rstrip(" ±") for name in outcomes),
            str(e["collapsed"]),
            number(e["winners"], 2),
            number(e["losers"], 2),
            number(e["grad_norm"], 2),
            number(e["grad_norm_variation"], 2),
            f"{e['clipped']:.1%}",
            number(e["seconds"], 0),
            *(number(e[name]) for name in last),
        ]
        for e in entries
    ]
    return table([*header, "gradient's norm", "its variation", "clipped", "seconds", *last], lines)


def comparison_cell(entry: dict | None) -> str:
    if entry is None:
        return ""
    size = difference(entry)
    if math.isnan(entry["p_holm"]):
        return f"{size}, no test"
    size = f"**{size}**" if entry["p_holm"] < 0.01 else size
    rest = f"; {difference(entry['without_collapsed'])} without collapsed" if "without_collapsed" in entry else ""
    return f"{size}, {p_value(entry['p_holm'])}, sees {number(entry['detectable'])}{rest}"


def comparison_table(entries: list[dict]) -> str:
    tasks = list(dict.fromkeys(e["task"] for e in entries))
    tasks = [*(task for task in tasks if task != ALL), *([ALL] if len(tasks) > 2 else [])]
    by_cell = {(e["variant"], e["task"]): e for e in entries}
    named = {e["variant"]: f"{e['variant']} − {e['reference']}" for e in entries}
    lines = [
        [name, *(comparison_cell(by_cell.get((variant, task))) for task in tasks)] for variant, name in named.items()
    ]
    return table(["", *tasks], lines)


def what_is_there(summary: dict) -> str:
    """How many of the planned seeds each task has for all of its variants."""
    told = [f"{task} {seeds} of {summary['planned_seeds']}" for task, seeds in summary["seeds"].items()]
    return f"Seeds that all variants of a task have: {', '.join(told)}."


def what_ran_before(summary: dict) -> str:
    """The variants whose own tuned rate is that of this section: their runs are no repetition."""
    told = []
    for task, variants in summary["rate_is_their_own"].items():
        of_task = [e["variant"] for e in summary["cells"] if e["task"] == task]
        told.append(f"{task}: {'all' if len(variants) == len(of_task) else ', '.join(variants)}")
    return f"Tuned to this rate anyway, so that these are seeds of the section with tuned rates: {'; '.join(told)}.\n"


def without_nan(value):
    """The value with `None` for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def page(study: Study, summaries: list[dict], stem: Path) -> str:
    parts = [f"# Tables of the study `{study.name}`\n"]
    own = "../docs/credit.md" if study.name == "credit" else "../README.md"
    parts.append(
        HOW_TO_READ.format(name=study.name, stem=f"scripts/studies/results/{stem.name}", page=own, pooled=ALL)
    )
    parts.append(f"![Learning curves]({stem.name}_curves.png)\n\n![Differences]({stem.name}_differences.png)\n")
    parts += answers(study, summaries)
    for summary in summaries:
        parts.append(f"## {summary['title']}\n\n{what_is_there(summary)}\n")
        if summary["rate_is_their_own"]:
            parts.append(what_ran_before(summary))
        for name, title in summary["outcomes"].items():
            for family, against in FAMILIES.items():
                entries = [e for e in summary["comparisons"] if (e["outcome"], e["family"]) == (name, family)]
                if entries:
                    parts += [f"### {title}, {against}\n", comparison_table(entries)]
        for task in dict.fromkeys(e["task"] for e in summary["cells"]):
            entries = [e for e in summary["cells"] if e["task"] == task]
            parts.append(f"### {summary['title']}: `{task}`, {entries[0]['before']:.3f} before training\n")
            parts.append(cells_table(entries, summary["outcomes"]))
    return "\n".join(parts)


def write_report(study: Study, rows: list[dict], stem: Path) -> None:
    """Write STEM.md, STEM.json, STEM_curves.png and STEM_differences.png."""
    summaries = summarise(study, rows)
    complete = [summary for summary in summaries if summary["cells"]]
    if not complete:
        raise SystemExit(
            f"{study.name}: nothing to report. No task has a seed with finished runs of all its variants."
        )
    stem.with_suffix(".json").write_text(json.dumps(without_nan(summaries), indent=1, allow_nan=False) + "\n")
    draw_curves(study, rows, stem.with_name(f"{stem.name}_curves.png"))
    draw_differences(complete[0], stem.with_name(f"{stem.name}_differences.png"))
    stem.with_suffix(".md").write_text(page(study, summaries, stem))
