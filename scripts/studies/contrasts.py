"""Outcomes of finished runs, their paired comparisons, and tables of them."""

import math
from collections.abc import Iterator

import numpy as np

from delta_trl.evaluation.paired import holm, interval, p_value

from .plans import Family, Plan, Section, terms
from .rows import Rows


OUTCOMES = {
    "accuracy": "Held-out accuracy after training",
    "area": "Area under the reward curve (mean reward of a rollout batch)",
    "looks": "Held-out accuracy, mean of all looks during training",
    "first look": "Held-out accuracy at the first look during training",
    "last looks": "Held-out accuracy, mean of the last three looks",
    "entropy": "Entropy of tokens in the last quarter (nats)",
    "accuracy at equal tokens": "Accuracy after as many generated tokens",
    "accuracy at equal minutes": "Accuracy after as many minutes of training",
}
MAX_GRAD_NORM = 1.0  # of arms that set none
Cells = dict[tuple[str, str], dict[int, dict]]  # rows by task and arm, then by seed


def outcome(row: dict, name: str, beside: list[dict]) -> float:
    """One of `OUTCOMES`, or `pass@K`. `beside`: the rows that it is compared with, itself included."""
    if name == "accuracy":
        return row["accuracy_after"]
    if name == "area":
        return mean(row["reward"])
    if name == "entropy":
        return mean(row["entropy"][-len(row["entropy"]) // 4 :])
    if name == "looks":
        return mean([look["accuracy"] for look in row["looks"] if look["rollouts"]])
    if name == "first look":
        return row["looks"][1]["accuracy"]
    if name == "last looks":
        return mean([look["accuracy"] for look in row["looks"][-3:]])
    if name.startswith("accuracy at equal "):
        spent = generated_tokens if name.endswith("tokens") else minutes
        return accuracy_at(row, spent(row), min(spent(one)[-1] for one in beside))
    looks = [look["solved"] for look in row.get("looks", [])[-1:]]
    return pass_at(max([row["solved_after"], *looks], key=len), int(name.removeprefix("pass@")))  # most samples


def mean(values: list[float | None]) -> float:
    """Undefined values, such as losers' weight if none lost, are `None` in a row."""
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else math.nan


def pass_at(solved: list[int], k: int) -> float:
    """Pass@k, from the counts of problems that 0, 1, ... of n samples solve: the mean of 1 - C(n-c, k) / C(n, k)."""
    n = len(solved) - 1
    return sum(count * (1 - math.comb(n - c, k) / math.comb(n, k)) for c, count in enumerate(solved)) / sum(solved)


def generated_tokens(row: dict) -> np.ndarray:
    """Millions of tokens, also of dropped groups and of continuations, at the start and after each rollout batch."""
    completions = 64 if row["task"] in ("sums", "fruits") else 128  # of a rollout batch
    trained = np.array(row["length"]) * completions / 1e6
    ratio = row["dynamic_sampling"].get("tokens_per_trained_token", np.ones_like(trained))
    continued = np.array(row.get("continued_tokens") or np.zeros_like(trained)) / 1e6
    return np.cumsum([0.0, *(trained * ratio + continued)])


def minutes(row: dict) -> np.ndarray:
    """Minutes of training, without evaluations, at the start and after each rollout batch."""
    return np.cumsum([0.0, *np.reshape(row["step_seconds"], (len(row["length"]), -1)).sum(axis=1)]) / 60


def accuracy_at(row: dict, spent: np.ndarray, effort: float) -> float:
    """By a straight line between looks; without looks, between the rewards of the batches' first completions."""
    if "looks" in row:
        found = {look["rollouts"]: look["accuracy"] for look in row["looks"]}
        found = {n: row["accuracy_before"] if a is None else a for n, a in found.items()}
    else:
        rewards = row["dynamic_sampling"].get("reward_before", row["reward"])
        found = {**dict(enumerate(rewards)), len(rewards): row["accuracy_after"]}
    return float(np.interp(effort, spent[list(found)], list(found.values())))


def cells_of(plan: Plan, family: Family, rows: Rows) -> Cells:
    """
    The rows that a family compares.

    Raises:
        `ValueError`: If a task's rows began at different start models.
    """
    found: Cells = {}
    for name in family.sections:
        found |= plan.finished(plan.sections[name], rows)
    begun: dict[str, set] = {}
    for (task, _), of_seeds in found.items():
        begun.setdefault(task, set()).update(row["start_model"] for row in of_seeds.values() if "start_model" in row)
    if mixed := [task for task, models in begun.items() if len(models) > 1]:
        raise ValueError(
            f"The rows of {', '.join(mixed)} began at different start models (their `start_model` differs), so they "
            "cannot be compared. Keep those of one start model."
        )
    return found


def differences(family: Family, name: str, found: Cells) -> dict[tuple[str, str], dict[int, float]]:
    """
    Values of an outcome by task and contrast, then by seed: on the seeds that all of the family's arms have there.
    Contrasts with an arm that did not run on a task are left out.
    """
    values: dict[tuple[str, str], dict[int, float]] = {}
    for task in family.tasks:
        weights: dict[str, dict] = {}
        for contrast in family.contrasts:
            cells = {(t, a): v * w for t, v in terms(task).items() for a, w in terms(contrast).items()}
            if all(cell in found for cell in cells):
                weights[contrast] = cells
        used = {cell for cells in weights.values() for cell in cells}
        seeds = sorted(set.intersection(*(set(found[cell]) for cell in used))) if used else []
        for contrast, cells in weights.items():
            values[task, contrast] = {}
            for seed in seeds:
                rows = {cell: found[cell][seed] for cell in cells}
                parts = [w * outcome(rows[cell], name, list(rows.values())) for cell, w in cells.items()]
                values[task, contrast][seed] = sum(parts)
    return values


def compare(plan: Plan, family: Family, name: str, rows: Rows) -> list[dict]:
    """
    An entry per task and contrast, or per contrast: `n`, mean `difference` with the `half` width of its 95 %
    interval, `p` of a two-sided t-test, and `p_holm`, corrected as the family says.
    """
    by_task = differences(family, name, cells_of(plan, family, rows))
    samples: dict[tuple[str, str], list[float]] = {}
    for (task, contrast), of_seeds in by_task.items():
        if family.unit == "seed":
            samples[task, contrast] = list(of_seeds.values())
        elif family.unit == "task" and of_seeds:
            samples.setdefault(("all", contrast), []).append(mean(list(of_seeds.values())))
        elif family.unit == "pair":
            samples.setdefault(("all", contrast), []).extend(of_seeds.values())
    if family.unit == "mean":
        for contrast in family.contrasts:
            tasks = [of_seeds for (_, c), of_seeds in by_task.items() if c == contrast]
            seeds = set.intersection(*map(set, tasks)) if tasks else set()
            samples["all", contrast] = [mean([of_seeds[seed] for of_seeds in tasks]) for seed in sorted(seeds)]
    entries = []
    for (task, contrast), values in samples.items():
        if values:
            difference, half = interval(values)
            entry = {"task": task, "contrast": contrast, "n": len(values), "difference": difference, "half": half}
            entries.append(entry | {"p": p_value(values), "p_holm": math.nan})
    tested_together: dict[str, list[dict]] = {}
    for entry in entries if family.corrected_over != "nothing" else ():
        group = {"contrasts": entry["task"], "tasks": entry["contrast"], "both": ""}[family.corrected_over]
        tested_together.setdefault(group, []).append(entry)
    for tested in tested_together.values():
        for entry, p in zip(tested, holm([entry["p"] for entry in tested]), strict=True):
            entry["p_holm"] = p
    return entries


def differs_at_first(found: Cells) -> list[str]:
    """The task and seed of pairs whose first rollout batches differ, as on another processor."""
    first: dict[tuple[str, int], set] = {}
    for (task, _), of_seeds in found.items():
        for seed, row in of_seeds.items():
            first.setdefault((task, seed), set()).add(
                row.get("dynamic_sampling", {}).get("reward_before", row["reward"])[0]
            )
    return [f"{task} {seed}" for (task, seed), batches in first.items() if len(batches) > 1]


# --- tables ---------------------------------------------------------------------------------------------------------


def shown(entry: dict | None) -> str:
    if entry is None:
        return ""
    size = f"{entry['difference']:+.3f}" + ("" if math.isnan(entry["half"]) else f" ± {entry['half']:.3f}")
    p = entry["p_holm"]
    return size if math.isnan(p) else f"{size}, p < 0.001" if p < 0.001 else f"{size}, p {p:.3f}"


def table(header: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines)) + "\n"


def family_tables(plan: Plan, family: Family, rows: Rows) -> Iterator[str]:
    """For each outcome: differences ± 95 %, then p after Holm's correction where the plan tests."""
    for name in family.outcomes:
        entries = compare(plan, family, name, rows)
        if not entries:
            continue
        n = {entry["task"]: entry["n"] for entry in entries}
        by_place = {(entry["contrast"], entry["task"]): entry for entry in entries}
        lines = [[contrast, *(shown(by_place.get((contrast, task))) for task in n)] for contrast in family.contrasts]
        yield f"## {family.title}: {OUTCOMES.get(name, name)}\n"
        yield table(["", *(f"{task} (n {count})" for task, count in n.items())], lines)


def section_table(plan: Plan, section: Section, rows: Rows) -> str:
    """What the runs of each task and arm were like: means over seeds."""
    lines = []
    for (task, _), of_seeds in plan.finished(section, rows).items():
        runs = list(of_seeds.values())
        arm, rate = runs[0]["variant"], runs[0]["learning_rate"]
        limit = plan.arms[arm].get("max_grad_norm", MAX_GRAD_NORM)
        clipped = np.mean([np.mean(np.array(row["grad_norm"], dtype=float) > limit) for row in runs])
        weights = [mean([mean(row.get(side, [])) for row in runs]) for side in ("winners", "losers")]
        numbers = [mean([row[f"accuracy_{when}"] for row in runs]) for when in ("before", "after")]
        shares = [f"{x:.3f}" for x in numbers] + ["" if math.isnan(x) else f"{x:.2f}" for x in weights]
        lines.append([task, arm, f"{rate:g}", str(len(runs)), *shares, f"{clipped:.1%}"])
    header = ["task", "arm", "rate", "seeds", "accuracy before", "after", "winners", "losers", "clipped"]
    return f"## Runs of `{section.name}`\n\n" + table(header, lines)
