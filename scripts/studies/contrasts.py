"""Outcomes of finished runs, their paired comparisons, and tables of them."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from delta_trl.evaluation.seed_statistics import holm, t_test

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
Pair = tuple[str, str]
Cells = dict[Pair, dict[int, dict]]  # rows by task and arm, then by seed
Differences = dict[Pair, dict[int, float]]  # by task and contrast, then by seed


def outcome(row: dict, name: str, beside: list[dict]) -> float:
    """One of `OUTCOMES`, or `pass@K`. `beside`: the rows that it is compared with, itself included."""
    if name == "accuracy":
        return row["accuracy_after"]
    if name == "area":
        return mean(row["reward"])
    if name == "entropy":
        last_quarter = row["entropy"][-len(row["entropy"]) // 4 :]
        return mean(last_quarter)
    if name == "accuracy at equal tokens":
        return accuracy_at_equal(row, generated_tokens, beside)
    if name == "accuracy at equal minutes":
        return accuracy_at_equal(row, minutes, beside)
    looks = row.get("looks", [])
    if name == "looks":
        return mean([look["accuracy"] for look in looks if look["rollouts"]])
    if name == "first look":
        return looks[1]["accuracy"]
    if name == "last looks":
        return mean([look["accuracy"] for look in looks[-3:]])
    solved = [row["solved_after"]]
    if looks:
        solved.append(looks[-1]["solved"])
    most_samples = max(solved, key=len)
    k = int(name.removeprefix("pass@"))
    return pass_at(most_samples, k)


def mean(values: list[float | None]) -> float:
    """Undefined values, such as losers' weight if none lost, are `None` in a row."""
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else math.nan


def pass_at(solved: list[int], k: int) -> float:
    """Pass@k, from the counts of problems that 0, 1, ... of n samples solve: the mean of 1 - C(n-c, k) / C(n, k)."""
    n = len(solved) - 1
    total = 0.0
    for c, count in enumerate(solved):
        all_wrong = math.comb(n - c, k) / math.comb(n, k)
        total += count * (1 - all_wrong)
    return total / sum(solved)


def generated_tokens(row: dict) -> np.ndarray:
    """Millions of tokens, also of dropped groups and of continuations, at the start and after each rollout batch."""
    completions = 64 if row["task"] in ("sums", "fruits") else 128  # of a rollout batch
    trained = np.array(row["length"]) * completions
    per_trained = row["dynamic_sampling"].get("tokens_per_trained_token", 1.0)
    continued = np.array(row.get("continued_tokens") or 0.0)
    of_batches = (trained * per_trained + continued) / 1e6
    return np.cumsum([0.0, *of_batches])


def minutes(row: dict) -> np.ndarray:
    """Minutes of training, without evaluations, at the start and after each rollout batch."""
    of_steps = np.reshape(row["step_seconds"], (len(row["length"]), -1))
    of_batches = of_steps.sum(axis=1)
    return np.cumsum([0.0, *of_batches]) / 60


def accuracy_at_equal(row: dict, spent: Callable[[dict], np.ndarray], beside: list[dict]) -> float:
    """The accuracy after as much as the row has spent that spent least."""
    least = min(spent(other)[-1] for other in beside)
    found = accuracies(row)
    spent_then = spent(row)[list(found)]
    return float(np.interp(least, spent_then, list(found.values())))


def rewards_before_sampling(row: dict) -> list[float]:
    """Mean rewards of the completions that came first, before dynamic sampling replaced some."""
    return row.get("dynamic_sampling", {}).get("reward_before", row["reward"])


def accuracies(row: dict) -> dict[int, float]:
    """By rollout batches: those of the looks; without looks, the rewards of the batches' first completions."""
    if "looks" not in row:
        after_each = [*rewards_before_sampling(row), row["accuracy_after"]]
        return dict(enumerate(after_each))
    found = {}
    for look in row["looks"]:
        unknown = look["accuracy"] is None
        found[look["rollouts"]] = row["accuracy_before"] if unknown else look["accuracy"]
    return found


def cells_of(plan: Plan, family: Family, rows: Rows) -> Cells:
    """
    The rows that a family compares.

    Raises:
        `ValueError`: If a task's rows began at different start models.
    """
    found = {}
    for name in family.sections:
        found |= plan.finished(plan.sections[name], rows)
    begun = defaultdict(set)  # the start models of a task
    for (task, _), of_seeds in found.items():
        begun[task] |= {row["start_model"] for row in of_seeds.values() if "start_model" in row}
    if mixed := [task for task, models in begun.items() if len(models) > 1]:
        raise ValueError(
            f"The rows of {', '.join(mixed)} began at different start models (their `start_model` differs), so they "
            "cannot be compared. Keep those of one start model."
        )
    return found


def weights_of(task: str, contrast: str) -> dict[Pair, float]:
    """The weight of each task and arm: in `x - y`, `a - 0.5 b`, that of task y and arm b is 0.5."""
    weights = {}
    for name, of_task in terms(task).items():
        for arm, of_arm in terms(contrast).items():
            weights[name, arm] = of_task * of_arm
    return weights


def differences(family: Family, name: str, found: Cells) -> Differences:
    """
    Values of an outcome on the seeds that all of the family's arms have for a task. Contrasts with an arm
    that did not run on a task are left out.
    """
    values = {}
    for task in family.tasks:
        contrasts = {}
        used = {}
        for contrast in family.contrasts:
            weights = weights_of(task, contrast)
            if found.keys() >= weights.keys():
                contrasts[contrast] = weights
                used |= weights
        seeds = shared_seeds([found[cell] for cell in used])
        for contrast, weights in contrasts.items():
            values[task, contrast] = {}
            for seed in seeds:
                rows = [found[cell][seed] for cell in weights]
                outcomes = [outcome(row, name, rows) for row in rows]
                parts = [weight * value for weight, value in zip(weights.values(), outcomes, strict=True)]
                values[task, contrast][seed] = sum(parts)
    return values


def shared_seeds(by_seed: list[dict[int, Any]]) -> list[int]:
    """The seeds that all have."""
    seeds = [set(of_seeds) for of_seeds in by_seed]
    return sorted(set.intersection(*seeds)) if seeds else []


def compare(plan: Plan, family: Family, name: str, rows: Rows) -> list[dict]:
    """
    An entry per task and contrast, or per contrast: `n`, mean `difference` with the `half` width of its 95 %
    interval, `p` of a two-sided t-test, and `p_holm`, corrected as the family says.
    """
    by_task = differences(family, name, cells_of(plan, family, rows))
    entries = []
    for (task, contrast), values in samples(family, by_task).items():
        if values:
            difference, half, p = t_test(values)
            entry = {"task": task, "contrast": contrast, "n": len(values)}
            entry |= {"difference": difference, "half": half, "p": p, "p_holm": math.nan}
            entries.append(entry)
    if family.corrected_over != "nothing":
        correct(entries, family.corrected_over)
    return entries


def samples(family: Family, by_task: Differences) -> dict[Pair, list[float]]:
    """The values whose mean is tested, by task (or `all`) and contrast: see the `unit` of [`Family`]."""
    found = defaultdict(list)
    if family.unit == "mean":
        for contrast in family.contrasts:
            tasks = [of_seeds for (_, name), of_seeds in by_task.items() if name == contrast]
            for seed in shared_seeds(tasks):
                of_tasks = [of_seeds[seed] for of_seeds in tasks]
                found["all", contrast].append(mean(of_tasks))
        return found
    for (task, contrast), of_seeds in by_task.items():
        values = list(of_seeds.values())
        if family.unit == "seed":
            found[task, contrast] = values
        elif family.unit == "pair":
            found["all", contrast] += values
        elif values:
            found["all", contrast].append(mean(values))
    return found


def correct(entries: list[dict], over: str) -> None:
    """Set each entry's `p_holm`: corrected over the `contrasts` of a task, the `tasks` of a contrast, or `both`."""
    groups = defaultdict(list)
    for entry in entries:
        group = {"contrasts": entry["task"], "tasks": entry["contrast"], "both": ""}[over]
        groups[group].append(entry)
    for tested in groups.values():
        corrected = holm([entry["p"] for entry in tested])
        for entry, p in zip(tested, corrected, strict=True):
            entry["p_holm"] = p


def differs_at_first(found: Cells) -> list[str]:
    """The task and seed of pairs whose first rollout batches differ, as on another processor."""
    first = defaultdict(set)
    for (task, _), of_seeds in found.items():
        for seed, row in of_seeds.items():
            rewards = rewards_before_sampling(row)
            first[f"{task} {seed}"].add(rewards[0])
    return [name for name, batches in first.items() if len(batches) > 1]


# --- tables ---------------------------------------------------------------------------------------------------------


def shown(entry: dict | None) -> str:
    """`+0.049 ± 0.014, p < 0.001`, as far as it is known."""
    if entry is None:
        return ""
    text = f"{entry['difference']:+.3f}"
    p = entry["p_holm"]
    if not math.isnan(entry["half"]):
        text += f" ± {entry['half']:.3f}"
    if p < 0.001:
        text += ", p < 0.001"
    elif not math.isnan(p):
        text += f", p {p:.3f}"
    return text


def table(header: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(header)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, rule, *lines))


def family_tables(plan: Plan, family: Family, rows: Rows) -> Iterator[str]:
    """For each outcome: differences ± 95 %, then p after Holm's correction where the plan tests."""
    for name in family.outcomes:
        entries = compare(plan, family, name, rows)
        if not entries:
            continue
        n = {entry["task"]: entry["n"] for entry in entries}
        by_place = {(entry["contrast"], entry["task"]): entry for entry in entries}
        lines = []
        for contrast in family.contrasts:
            cells = [shown(by_place.get((contrast, task))) for task in n]
            lines.append([contrast, *cells])
        tasks = [f"{task} (n {count})" for task, count in n.items()]
        yield f"## {family.title}: {OUTCOMES.get(name, name)}\n"
        yield table(["", *tasks], lines)


def section_table(plan: Plan, section: Section, rows: Rows) -> str:
    """What the runs of each task and arm were like: means over seeds."""
    lines = []
    for (task, _), of_seeds in plan.finished(section, rows).items():
        runs = list(of_seeds.values())
        arm = runs[0]["variant"]
        limit = plan.arms[arm].get("max_grad_norm", MAX_GRAD_NORM)
        rate = runs[0]["learning_rate"]
        line = [task, arm, f"{rate:g}", str(len(runs))]
        for name in ("accuracy_before", "accuracy_after"):
            accuracy = mean([row[name] for row in runs])
            line.append(f"{accuracy:.3f}")
        for side in ("winners", "losers"):
            weight = mean([mean(row.get(side, [])) for row in runs])
            line.append("" if math.isnan(weight) else f"{weight:.2f}")
        clipped = []
        for row in runs:
            norms = np.array(row["grad_norm"], dtype=float)
            clipped.append(np.mean(norms > limit))
        line.append(f"{np.mean(clipped):.1%}")
        lines.append(line)
    header = ["task", "arm", "rate", "seeds", "accuracy before", "after", "winners", "losers", "clipped"]
    return f"## Runs of `{section.name}`\n\n" + table(header, lines)
