"""Tables and conclusions of the third study, by the rules of docs/mechanism_plan.md: for study.py."""

import json
from pathlib import Path

import numpy as np

from .answers import difference, p_value
from .pictures import draw_differences
from .plans import BASELINE, BEST, Study
from .report import cells_table, table, without_nan
from .statistics import OUTCOMES, compare_pairs, describe, holm, outcome


CLEAR, LITTLE, MOST = 0.05, 0.02, 3  # corrected p; bound of an interval; number of the four tasks
LOSERS = "losers_0.2"
# Family A of the plan, and what each is compared with
GAINS = dict.fromkeys((LOSERS, "annealed", "prompt_weights", "dapo_unit", "losers_0.2_not_annealed"), BASELINE)
GAINS |= {"losers_0.2_unit": "dapo_unit", "winners_0.2": BASELINE}
WITHOUT_SIDES = ("annealed", "prompt_weights", "dapo_unit")  # family B
SIDES_ALONE = ("losers_0.2_not_annealed", "losers_0.2_unit")
EXACT, UNIFORM = BEST  # family C
Runs = dict[str, dict[str, list[dict]]]  # rows by task and arm, on the same seeds in the same order
HOW_TO_READ = """\
Written by `python -m scripts.studies.study --study mechanism --report` from
`scripts/studies/results/{name}.jsonl`. Arms, tests and what is concluded from what are those of
[the plan](../docs/mechanism_plan.md).

Differences are in held-out accuracy, paired by seed, ± 95 % (Student's t), then p of a paired t-test after Holm's
correction over the family, then Wilcoxon's p, uncorrected. *Clear* means corrected p < 0.05.
"""


def complete_runs(study: Study, rows: list[dict]) -> Runs:
    """Rows of the seeds that all arms of a task have. The last two arms are the variants that were tuned best."""
    (section,) = study.sections
    done = {(row["phase"], row["task"], row["variant"], row["seed"]): row for row in rows}
    runs: Runs = {}
    for task in study.tasks:
        cells = [cell for cell in section.cells if cell[0] == task]
        if any((*run.key[:3], run.seed) not in done for run in study.tuning(cells)):
            continue
        variants = {name: study.best((task, name), rows)[1] for _, name in cells}
        planned = range(study.first_seed, study.first_seed + section.seeds)
        seeds = [s for s in planned if all((section.phase, task, v, s) in done for v in variants.values())]
        if len(seeds) > 1:
            runs[task] = {name: [done[section.phase, task, v, s] for s in seeds] for name, v in variants.items()}
    return runs


def corrected(entries: dict[str, dict]) -> dict[str, dict]:
    """The entries with p after Holm's correction over all of them."""
    p_values = holm([entry["p_t"] for entry in entries.values()])
    return {name: {**entry, "p_holm": p} for (name, entry), p in zip(entries.items(), p_values, strict=True)}


def compare(runs: Runs, name: str = "accuracy") -> tuple[dict, dict, dict]:
    """The plan's families: A and B by task and arm, C by task."""
    gains, halves, tokens = {}, {}, {}
    for task, arms in runs.items():
        values = {arm: np.array([outcome(row, name) for row in rows]) for arm, rows in arms.items()}
        half = (values[LOSERS] + values[BASELINE]) / 2  # the outcome with half of the gain
        gains[task] = corrected({arm: compare_pairs(values[arm], values[of]) for arm, of in GAINS.items()})
        halves[task] = corrected({arm: compare_pairs(values[arm], half) for arm in WITHOUT_SIDES})
        tokens[task] = compare_pairs(values[EXACT], values[UNIFORM])
    return gains, halves, corrected(tokens)


def is_clear(entry: dict, sign: int) -> bool:
    """Whether an entry is clearly above (`sign` 1) or below (-1) zero. Without variance there is no p: not clear."""
    return entry["p_holm"] < CLEAR and entry["difference"] * sign > 0


def conclude(gains: dict[str, dict], halves: dict[str, dict]) -> dict:
    """What the plan concludes for one task."""
    half = gains[LOSERS]["difference"] / 2
    return {
        "something to explain": is_clear(gains[LOSERS], 1),
        "recover half of it without losers": [arm for arm, entry in halves.items() if entry["difference"] >= 0],
        "ruled out": [arm for arm, entry in halves.items() if is_clear(entry, -1)],
        "the sides suffice": all(is_clear(gains[a], 1) and gains[a]["difference"] >= half for a in SIDES_ALONE),
        "the direction matters": is_clear(gains["winners_0.2"], -1),
        "the other direction gains, too": is_clear(gains["winners_0.2"], 1),
    }


def verdicts(conclusions: dict[str, dict], tokens: dict[str, dict]) -> list[str]:
    """The plan's conclusions over all tasks, or for which tasks they hold."""
    sides = [
        task
        for task, found in conclusions.items()
        if found["something to explain"]
        and set(found["ruled out"]) == set(WITHOUT_SIDES)
        and found["the sides suffice"]
        and found["the direction matters"]
    ]
    wrong = [
        task
        for task, found in conclusions.items()
        if found["something to explain"]
        and (found["recover half of it without losers"] or found["the other direction gains, too"])
    ]
    above = [task for task, entry in tokens.items() if is_clear(entry, 1)]
    below = [task for task, entry in tokens.items() if is_clear(entry, -1)]
    little = [task for task, entry in tokens.items() if -LITTLE <= entry["low"] and entry["high"] <= LITTLE]
    general = "It is the sides, neither step size nor prompts" if len(sides) >= MOST else "It is said task by task"
    if len(above) >= 2 and not below:
        of_tokens = "exact labels gain"
    else:
        of_tokens = "exact labels add little" if len(little) >= MOST else "not settled"

    def listed(tasks: list[str]) -> str:
        return ", ".join(tasks) or "none"

    return [
        f"{general}: all that the plan asks for holds on {listed(sides)}.",
        f'"Losers" is the wrong word on: {listed(wrong)}.',
        f"Tokens, {of_tokens}: exact labels are clearly above the same weight spread on {listed(above)}, below on "
        f"{listed(below)}, within ±{LITTLE} on {listed(little)}.",
    ]


def shown(entry: dict) -> str:
    if np.isnan(entry["p_t"]):
        return f"{difference(entry)}, no test"
    return f"{difference(entry)}, {p_value(entry['p_holm'])}, {p_value(entry['p_wilcoxon'])}"


def conclusion_cell(value: bool | list[str]) -> str:
    return (", ".join(value) or "none") if isinstance(value, list) else "yes" if value else "no"


def page(study: Study, runs: Runs, stem: Path) -> str:
    gains, halves, tokens = compare(runs)
    conclusions = {task: conclude(gains[task], halves[task]) for task in runs}
    planned = study.sections[0].seeds
    parts = [f"# Tables of the study `{study.name}`\n", HOW_TO_READ.format(name=stem.name)]
    seeds = [f"{task} {len(runs[task][BASELINE]) if task in runs else 0} of {planned}" for task in study.tasks]
    commits = sorted({row["commit"] for arms in runs.values() for rows in arms.values() for row in rows})
    parts.append(
        f"Seeds that all arms of a task have: {', '.join(seeds)}. Commits of the rows: {', '.join(commits)}.\n"
    )
    parts.append("## What is concluded\n")
    parts.append("\n".join(f"- {line}" for line in verdicts(conclusions, tokens)) + "\n")
    asked = list(next(iter(conclusions.values())))
    lines = [[name, *(conclusion_cell(found[name]) for found in conclusions.values())] for name in asked]
    parts.append(table(["", *conclusions], lines))
    families = {
        "A: gains": ({f"{arm} − {of}": arm for arm, of in GAINS.items()}, gains),
        "B: what gains without sides, less half of what losers gain": ({a: a for a in WITHOUT_SIDES}, halves),
    }
    for title, (names, entries) in families.items():
        lines = [[name, *(shown(entries[task][arm]) for task in runs)] for name, arm in names.items()]
        parts += [f"## {title}\n", table(["", *runs], lines)]
    parts.append("## C: exact labels against the same for all tokens, each at its best weight of losers\n")
    lines = [[f"{EXACT} − {UNIFORM}", *(shown(tokens[task]) for task in runs)]]
    lines += [[name, *(arms[name][0]["variant"] for arms in runs.values())] for name in BEST]
    parts.append(table(["", *runs], lines))
    parts.append("## Area under the reward curve, without conclusions\n")
    areas, _, tokens_area = compare(runs, "area")
    lines = [[f"{arm} − {of}", *(difference(areas[task][arm]) for task in runs)] for arm, of in GAINS.items()]
    lines.append([f"{EXACT} − {UNIFORM}", *(difference(tokens_area[task]) for task in runs)])
    parts.append(table(["", *runs], lines))
    for task, arms in runs.items():
        cells = describe({(task, arm): dict(enumerate(rows)) for arm, rows in arms.items()}, OUTCOMES)
        parts.append(f"## `{task}`, {cells[0]['before']:.3f} before training\n")
        parts.append(cells_table(cells, OUTCOMES))
    return "\n".join(parts)


def write_report(study: Study, rows: list[dict], stem: Path) -> None:
    """Write STEM.md, STEM.json and STEM_differences.png."""
    runs = complete_runs(study, rows)
    if not runs:
        raise SystemExit(f"{study.name}: nothing to report. No task has two seeds with all its arms.")
    gains, halves, tokens = compare(runs)
    families = {"gains": gains, "halves": halves, "tokens": tokens}
    stem.with_suffix(".json").write_text(json.dumps(without_nan(families), indent=1, allow_nan=False) + "\n")
    stem.with_suffix(".md").write_text(page(study, runs, stem))
    comparisons = [
        {"outcome": "accuracy", "family": "baseline", "task": task, "variant": arm, **entry}
        for task, arms in gains.items()
        for arm, entry in arms.items()
    ]
    summary = {"outcomes": OUTCOMES, "cells": [{"task": task} for task in runs], "comparisons": comparisons}
    draw_differences(summary, stem.with_name(f"{stem.name}_differences.png"))
