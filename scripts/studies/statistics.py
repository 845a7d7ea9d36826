"""Paired comparisons of finished runs of scripts/studies/study.py."""

import math
from functools import cache

import numpy as np
from scipy import optimize, stats

from delta_trl.evaluation.metrics import pass_at_k

from .plans import ALL, BASELINE, EACH, Cell, Section, Study
from .token_gradients import interval


FAMILIES = {
    "baseline": "against DAPO",
    "side_matched": "against the same weight per side",
    "shuffled": "against itself, shuffled",
}
OUTCOMES = {"accuracy": "Held-out accuracy after training", "area": "Area under the reward curve"}
LONG_OUTCOMES = {
    **OUTCOMES,
    "pass@1": "Pass@1 of 64 test problems in the end",
    "pass@64": "Pass@64 of 64 test problems in the end",
    "entropy": "Entropy of tokens in the last quarter (nats)",
    "looks": "Held-out accuracy, mean of the four looks on the way (added after results were seen)",
}
TITLES = {**LONG_OUTCOMES, "pass@8": "Pass@8 of 64 test problems after training"}
POWER, LEVEL = 0.8, 0.05
MAX_GRAD_NORM = 1.0  # transformers' default, with which all runs were made


def outcomes_of(study: Study, section: Section) -> dict[str, str]:
    """Titles of a section's outcomes: first what is tested."""
    tested = OUTCOMES if section.phase == "study" else LONG_OUTCOMES
    described = {name: f"{TITLES[name]} (described, not tested)" for name in study.described}
    return {name: title for name, title in tested.items() if name not in described} | described


def outcome(row: dict, name: str) -> float:
    """One of `TITLES`. The area is the mean of the reward curve, that is the area per rollout batch."""
    if name == "accuracy":
        return row["accuracy_after"]
    if name == "area":
        return curve_mean(row["reward"])
    if name == "entropy":
        return last_quarter(row["entropy"])
    if name == "looks":
        return float(np.mean([look["accuracy"] for look in row["looks"][1:]]))  # the first is before training
    solved = row["looks"][-1]["solved"] if "looks" in row else row["solved_after"]
    return solved_within(solved, int(name.removeprefix("pass@")))


def curve_mean(values: list[float | None]) -> float:
    """The mean over rollout batches. Undefined values, such as losers' weight if none lost, are `None` in a row."""
    defined = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def last_quarter(values: list[float | None]) -> float:
    return curve_mean(values[-len(values) // 4 :])


def solved_within(solved: list[int], k: int) -> float:
    """Pass@k, from the counts of problems that 0, 1, ... of some samples solve."""
    samples = len(solved) - 1
    rewards = np.repeat(np.tri(samples + 1, samples, -1), solved, axis=0)  # (problems, samples)
    return pass_at_k(rewards, k)


def collapsed(row: dict) -> bool:
    """Worse than before training, or in the end below half of the best reward (both means of 3 rollout batches)."""
    smooth = np.convolve([r for r in row["reward"] if r is not None], np.ones(3) / 3, mode="valid")
    return bool(row["accuracy_after"] < row["accuracy_before"] or smooth[-1] < smooth.max() / 2)


def detectable_difference(sd: float, n: int, level: float = LEVEL, power: float = POWER) -> float:
    """The mean difference that a two-sided paired t-test over n pairs of this deviation finds with `power`."""
    return math.nan if n < 2 else _detectable_shift(n, level, power) * sd / math.sqrt(n)


@cache
def _detectable_shift(n: int, level: float, power: float) -> float:
    critical = stats.t.ppf(1 - level / 2, n - 1)
    # findings in the wrong direction are ignored: fewer than one in 10,000 studies with this shift
    return float(optimize.brentq(lambda shift: stats.nct.sf(critical, n - 1, shift) - power, 0, 2 * critical + 3))


def compare_pairs(values: np.ndarray, baseline: np.ndarray) -> dict:
    """Paired comparison: mean difference with its 95 % interval, two tests, and the detectable difference."""
    differences = np.asarray(values, dtype=float) - np.asarray(baseline, dtype=float)
    n = len(differences)
    mean, half = interval(differences)
    sd = float(np.std(differences, ddof=1)) if n > 1 else math.nan
    varies = n > 1 and sd > 0
    return {
        "pairs": n,
        "difference": mean,
        "low": mean - half,
        "high": mean + half,
        "sd": sd,
        "p_t": float(stats.ttest_1samp(differences, 0).pvalue) if varies else math.nan,
        "p_wilcoxon": float(stats.wilcoxon(differences).pvalue) if np.any(differences) else math.nan,
        "detectable": detectable_difference(sd, n),
    }


def holm(p_values: list[float]) -> list[float]:
    """Holm's adjusted p-values. NaN stays NaN and counts as no test."""
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - rank)))
        adjusted[i] = largest
    return adjusted


def planned_pairs(study: Study, section: Section) -> list[tuple[str, Cell, Cell]]:
    """
    What a section compares: (family, cell, its reference). One of the two is the section's, the other may be of an
    earlier one.
    """
    so_far = study.sections[: study.sections.index(section) + 1]
    same = [s for s in so_far if (s.phase, s.rate_of_baseline) == (section.phase, section.rate_of_baseline)]
    known = dict.fromkeys(cell for s in same for cell in s.cells)
    mine = set(section.cells)
    pairs = []
    for task, variant in known:
        references = {
            "baseline": None if variant in {BASELINE, *study.controls} else BASELINE,
            "side_matched": study.side_matched.get(variant),
            "shuffled": study.shuffled.get(variant),
        }
        for family, reference in references.items():
            cells = ((task, variant), (task, reference))
            if cells[1] in known and not mine.isdisjoint(cells):
                pairs.append((family, *cells))
    return pairs


def finished_runs(study: Study, section: Section, rows: list[dict]) -> dict[Cell, dict[int, dict]]:
    """
    Rows by task and variant, then by seed, of all that a section compares: those at the section's learning rate, on
    the seeds that all of the task's variants have.

    Raises:
        `ValueError`: If a task's rows began at different start models.
    """
    cells = list(
        dict.fromkeys([*section.cells, *(cell for _, *pair in planned_pairs(study, section) for cell in pair)])
    )
    rates = study.learning_rates(section, cells, rows)
    found: dict[Cell, dict[int, dict]] = {cell: {} for cell in cells}
    begun: dict[str, set] = {}
    for row in rows:
        cell = (row["task"], row["variant"])
        is_ours = row["phase"] == section.phase and row["seed"] - study.first_seed in range(section.seeds)
        if is_ours and cell in rates and row["learning_rate"] == rates[cell]:
            found[cell][row["seed"]] = row
            if "start_model" in row:  # rows of the first studies do not tell
                begun.setdefault(row["task"], set()).add(row["start_model"])
    if mixed := [task for task, models in begun.items() if len(models) > 1]:
        raise ValueError(
            f"The rows of {', '.join(mixed)} began at different start models (their `start_model` differs), so they "
            "cannot be compared. Keep those of one start model."
        )
    complete = {}
    for task in dict.fromkeys(task for task, _ in cells):
        of_task = {cell: runs for cell, runs in found.items() if cell[0] == task}
        seeds = sorted(set.intersection(*(set(runs) for runs in of_task.values())))
        complete |= {cell: {seed: runs[seed] for seed in seeds} for cell, runs in of_task.items() if seeds}
    return complete


def describe(runs: dict[Cell, dict[int, dict]], outcomes: dict[str, str]) -> list[dict]:
    """For each task and variant: outcomes with their 95 % intervals over seeds, collapses, statistics of the runs."""
    entries = []
    for (task, variant), of_seeds in runs.items():
        rows = list(of_seeds.values())
        norms = [np.array(row["grad_norm"], dtype=float) for row in rows]
        entry = {
            "task": task,
            "variant": variant,
            "learning_rate": rows[0]["learning_rate"],
            "seeds": len(rows),
            "collapsed": sum(map(collapsed, rows)),
            "before": float(np.mean([row["accuracy_before"] for row in rows])),
            "grad_norm": float(np.median([np.nanmean(norm) for norm in norms])),
            "clipped": float(np.mean([np.nanmean(norm > MAX_GRAD_NORM) for norm in norms])),
            "grad_norm_variation": float(np.median([np.nanstd(norm) / np.nanmean(norm) for norm in norms])),
            "seconds": float(np.median([row["seconds"] for row in rows])),
            "entropy": curve_mean([last_quarter(row.get("entropy", [])) for row in rows]),
        }
        for name in ("winners", "losers", "length"):
            entry[name] = curve_mean([curve_mean(row.get(name, [])) for row in rows])
        for name in outcomes:
            entry[name], entry[f"{name}_half_width"] = interval([outcome(row, name) for row in rows])
        entries.append(entry)
    return entries


def compare(
    pairs: list[tuple[str, Cell, Cell]],
    runs: dict[Cell, dict[int, dict]],
    outcomes: dict[str, str],
    study: Study,
) -> list[dict]:
    """
    One entry per outcome, family, task and variant. Holm's correction is over the variants of a task in a family.
    Beside the tasks there is `ALL`: the same over all pairs of tasks and seeds, without those of adapters. What the
    study's plan does not test has NaN for its corrected p. Where runs collapsed, an entry also has the comparison
    without their seeds, untested.
    """
    entries: list[dict] = []
    for name in outcomes:
        values = {cell: [outcome(row, name) for row in of_seeds.values()] for cell, of_seeds in runs.items()}
        pooled: dict[tuple, tuple[list, list]] = {}
        for family, cell, reference in pairs:
            if cell not in runs or reference not in runs:
                continue
            entry = {"outcome": name, "family": family, "variant": cell[1], "reference": reference[1]}
            entry_of_task = {**entry, "task": cell[0], **compare_pairs(values[cell], values[reference])}
            entries.append(entry_of_task)
            stand = [
                not (collapsed(a) or collapsed(b))
                for a, b in zip(runs[cell].values(), runs[reference].values(), strict=True)
            ]
            if any(stand) and not all(stand):
                others = [np.array(values[of])[stand] for of in (cell, reference)]
                entry_of_task["without_collapsed"] = compare_pairs(*others)
            if not cell[0].endswith("+lora"):
                both = pooled.setdefault(tuple(entry.items()), ([], []))
                both[0].extend(values[cell])
                both[1].extend(values[reference])
        entries += [{**dict(key), "task": ALL, **compare_pairs(*both)} for key, both in pooled.items()]
    for family in {(e["outcome"], e["family"], e["task"]) for e in entries}:
        members = [e for e in entries if (e["outcome"], e["family"], e["task"]) == family]
        tested = family[0] not in study.described and (ALL if family[2] == ALL else EACH) in study.tests
        for entry, p in zip(members, holm([e["p_t"] if tested else math.nan for e in members]), strict=True):
            entry["p_holm"] = p
    return entries


def summarise(study: Study, rows: list[dict]) -> list[dict]:
    """
    For each section: its title and phase, how many seeds are complete on each task, described cells and comparisons.
    If all variants of a section run at the baseline's rate: by task, also those whose own tuned rate is the same.
    """
    summaries = []
    for section in study.sections:
        runs, outcomes = finished_runs(study, section, rows), outcomes_of(study, section)
        before: dict[str, list[str]] = {}
        if section.rate_of_baseline:
            rates = study.learning_rates(section, section.cells, rows)
            own = study.learning_rates(study.sections[0], section.cells, rows)
            for task, variant in runs:
                if rates[task, variant] == own.get((task, variant)):
                    before.setdefault(task, []).append(variant)
        seeds = dict.fromkeys((task for task, _ in section.cells), 0)
        seeds |= {task: len(of_seeds) for (task, _), of_seeds in runs.items()}
        summaries.append(
            {
                "title": section.title,
                "outcomes": outcomes,
                "phase": section.phase,
                "seeds": seeds,
                "planned_seeds": section.seeds,
                "cells": describe(runs, outcomes),
                "comparisons": compare(planned_pairs(study, section), runs, outcomes, study),
                "rate_is_their_own": before,
            }
        )
    return summaries
