"""Tables and conclusions of the study `elicit`, by the rules of docs/elicit_plan.md: for study.py."""

import json
from pathlib import Path

import numpy as np

from .answers import difference, p_value
from .pictures import draw_curves
from .plans import BASELINE, ELICIT_ARMS, ELICIT_FAMILIES, Study
from .report import cells_table, table, without_nan
from .statistics import OUTCOMES, compare_pairs, describe, finished_runs, solved_within


LOSERS, OTHER_WAY, STEPS = "losers_0.2", "losers_5", "annealed"
NARROW, BROAD = "narrow", "broad"
LAST_LOOKS, LEAST, MOST = 3, -0.02, 2  # looks; bound of pass@64; number of the three families
MEASURES = {
    "accuracy": "Held-out accuracy, mean of the last three looks",
    "pass@16": "Pass@16 in the end",
    "pass@64": "Pass@64 in the end",
}
EVERY = "all families"
HOW_TO_READ = """\
Written by `python -m scripts.studies.study --study elicit --report` from `scripts/studies/results/{name}.jsonl`. Arms,
outcomes and what is concluded from what are those of [the plan](../docs/elicit_plan.md).

Differences are paired by seed, ± 95 % (Student's t over seeds). An interaction is a difference on the broad model less
that on the narrow one, seed by seed. "All families": the mean of the families for each seed. One test is made, of the
interaction of `losers_0.2` over all families; Wilcoxon's p is beside it.
"""
Runs = dict[str, dict[str, dict[str, list[dict]]]]  # rows by family, start model and arm, on the same seeds


def complete_runs(study: Study, rows: list[dict]) -> Runs:
    """Rows of the seeds that all arms of all families have with both start models."""
    (section,) = study.sections
    found = finished_runs(study, section, rows)
    seeds = set.intersection(*(set(found.get(cell, ())) for cell in section.cells))
    return {
        family: {
            start: {arm: [found[f"{family}_{start}", arm][seed] for seed in sorted(seeds)] for arm in ELICIT_ARMS}
            for start in (NARROW, BROAD)
        }
        for family in ELICIT_FAMILIES
    }


def measure(row: dict, name: str) -> float:
    """One of `MEASURES`."""
    if name == "accuracy":
        return float(np.mean([look["accuracy"] for look in row["looks"][-LAST_LOOKS:]]))
    return solved_within(row["solved_after"], int(name.removeprefix("pass@")))


def gains(runs: Runs, name: str, start: str, arm: str, against: str = BASELINE) -> dict[str, np.ndarray]:
    """Differences between two arms, seed by seed, of each family and of all."""
    values = {
        family: {of: np.array([measure(row, name) for row in rows]) for of, rows in starts[start].items()}
        for family, starts in runs.items()
    }
    found = {family: of[arm] - of[against] for family, of in values.items()}
    return found | {EVERY: np.mean(list(found.values()), axis=0)}


def compare(runs: Runs, name: str) -> dict[str, dict[str, dict]]:
    """By what is compared, then by family: the arms' gains with either start model, and their interactions."""
    lines = {}
    pairs = [*((arm, BASELINE) for arm in ELICIT_ARMS if arm != BASELINE), (LOSERS, STEPS)]
    for arm, against in pairs:
        narrow, broad = (gains(runs, name, start, arm, against) for start in (NARROW, BROAD))
        title, families = f"{arm} − {against}", [*runs, EVERY]
        lines[f"{title}, {NARROW}"] = {of: compare_pairs(narrow[of], 0 * narrow[of]) for of in families}
        lines[f"{title}, {BROAD}"] = {of: compare_pairs(broad[of], 0 * broad[of]) for of in families}
        lines[f"{title}, interaction"] = {of: compare_pairs(broad[of], narrow[of]) for of in families}
    return lines


def where(entries: dict[str, dict], least: float = 0.0) -> list[str]:
    """The families on which the whole interval is above a bound."""
    return [family for family, entry in entries.items() if family != EVERY and entry["low"] > least]


def conclude(accuracy: dict[str, dict[str, dict]], pass_at_64: dict[str, dict[str, dict]]) -> dict:
    """What the plan concludes."""
    line = f"{LOSERS} − {BASELINE}"
    on_broad, interaction = accuracy[f"{line}, {BROAD}"], accuracy[f"{line}, interaction"][EVERY]
    kept = where(pass_at_64[f"{line}, {BROAD}"], LEAST)
    gain = [family for family in where(on_broad) if family in kept]
    lose = [family for family, entry in on_broad.items() if family != EVERY and entry["high"] < 0]
    other_way = where(pass_at_64[f"{OTHER_WAY} − {BASELINE}, {BROAD}"])
    if len(other_way) >= MOST:
        advice = "when teaching only"
    else:
        advice = "in general" if len(gain) >= MOST and not lose else "no general advice"
    return {
        "interaction": "more" if interaction["low"] > 0 else "less" if interaction["high"] < 0 else "not clear",
        "advice": advice,
        "gains on the broad model, pass@64 kept": gain,
        "loses on the broad model": lose,
        "gains on the narrow models": where(accuracy[f"{line}, {NARROW}"]),
        "losers x 5 win pass@64 on the broad model": other_way,
        "more than smaller steps, on the broad model": where(accuracy[f"{LOSERS} − {STEPS}, {BROAD}"]),
        "more than smaller steps, on the narrow models": where(accuracy[f"{LOSERS} − {STEPS}, {NARROW}"]),
    }


def page(study: Study, runs: Runs, comparisons: dict[str, dict], stem: Path) -> str:
    found = conclude(comparisons["accuracy"], comparisons["pass@64"])
    primary = comparisons["accuracy"][f"{LOSERS} − {BASELINE}, interaction"][EVERY]
    tested = f"{difference(primary)}, {p_value(primary['p_t'])}, Wilcoxon's {p_value(primary['p_wilcoxon'])}"
    every = [row for starts in runs.values() for arms in starts.values() for rows in arms.values() for row in rows]
    commits = sorted({row["commit"] for row in every})
    parts = [f"# Tables of the study `{study.name}`\n", HOW_TO_READ.format(name=stem.name)]
    parts.append(
        f"Seeds: {primary['pairs']} of {study.sections[0].seeds}. Commits of the rows: {', '.join(commits)}.\n"
    )
    parts.append("## What is concluded\n")
    parts.append(f"- Losers at 0.2: **{found['advice']}**.\n- Interaction: {tested}.\n")
    asked = {name: value for name, value in found.items() if isinstance(value, list)}
    parts.append(table(["", "families"], [[name, ", ".join(families) or "none"] for name, families in asked.items()]))
    for name, title in MEASURES.items():
        lines = [[line, *map(difference, entries.values())] for line, entries in comparisons[name].items()]
        parts += [f"## {title}\n", table(["", *runs, EVERY], lines)]
    for family, starts in runs.items():
        for start, arms in starts.items():
            task = f"{family}_{start}"
            cells = describe({(task, arm): dict(enumerate(rows)) for arm, rows in arms.items()}, OUTCOMES)
            parts += [f"## `{task}`, {cells[0]['before']:.3f} before training\n", cells_table(cells, OUTCOMES)]
    return "\n".join(parts)


def write_report(study: Study, rows: list[dict], stem: Path) -> None:
    """Write STEM.md, STEM.json and STEM_curves.png."""
    runs = complete_runs(study, rows)
    if len(runs[ELICIT_FAMILIES[0]][BROAD][BASELINE]) < 2:
        raise SystemExit(f"{study.name}: nothing to report. No two seeds have all arms of all families.")
    comparisons = {name: compare(runs, name) for name in MEASURES}
    stem.with_suffix(".json").write_text(json.dumps(without_nan(comparisons), indent=1, allow_nan=False) + "\n")
    stem.with_suffix(".md").write_text(page(study, runs, comparisons, stem))
    draw_curves(study, rows, stem.with_name(f"{stem.name}_curves.png"))
