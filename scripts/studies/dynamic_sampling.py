"""Tables of the study `dynamic_sampling`, for study.py: DAPO with and without, at the same effort."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from .answers import difference, p_value
from .plans import BASELINE, Study
from .report import table
from .runs import GENERATIONS, MINIBATCHES, PROMPTS
from .statistics import compare_pairs, curve_mean
from .tasks.language import PROMPTS as LANGUAGE_PROMPTS
from .tasks.language import TASKS as LANGUAGE_TASKS


DYNAMIC = "dynamic_sampling"
HOW_TO_READ = """\
Written by `python -m scripts.studies.study --study dynamic_sampling --report` from
`scripts/studies/results/dynamic_sampling.jsonl`: DAPO with `dynamic_sampling` and without, held-out accuracy at
temperature 1, paired by seed, ± 95 % (Student's t), then p of a paired t-test, uncorrected. At the same effort both
are read at what the one that took less had spent in the end, by a straight line between the evaluations. The language
model is not evaluated on the way: there, it is the mean reward of a rollout batch's first 64 completions.
"""


def rollout_batches(row: dict) -> np.ndarray:
    """Effort so far, in rollout batches, at the start and after each rollout batch; the others likewise."""
    return np.arange(len(row["length"]) + 1.0)


def generated_tokens(row: dict) -> np.ndarray:
    """In millions, of all rounds."""
    prompts = LANGUAGE_PROMPTS if row["task"] in LANGUAGE_TASKS else PROMPTS
    trained = np.array(row["length"]) * prompts * GENERATIONS / 1e6
    ratio = row["dynamic_sampling"].get("tokens_per_trained_token", np.ones_like(trained))
    return np.cumsum([0.0, *(trained * ratio)])


def minutes(row: dict) -> np.ndarray:
    """Of training, without evaluations."""
    steps = np.reshape(row["step_seconds"], (-1, MINIBATCHES)).sum(axis=1)
    return np.cumsum([0.0, *steps]) / 60


EFFORTS: dict[str, Callable[[dict], np.ndarray]] = {
    "rollout batches": rollout_batches,
    "million generated tokens": generated_tokens,
    "minutes of training": minutes,
}

LOGGED = {
    "rounds": "Mean over rollout batches: further rounds",
    "no_contrast_before": "share of groups without contrast in the first round",
    "no_contrast": "among those trained",
    "tokens_per_trained_token": "generated tokens for one that is trained",
}


def accuracy_on_the_way(row: dict) -> dict[int, float]:
    """The policy's accuracy after so many rollout batches."""
    if "looks" in row:
        found = {look["rollouts"]: look["accuracy"] for look in row["looks"]}
        return {n: row["accuracy_before"] if a is None else a for n, a in found.items()}
    first_round = row["dynamic_sampling"].get("reward_before", row["reward"])
    return {**dict(enumerate(first_round)), len(first_round): row["accuracy_after"]}


def accuracy_at(row: dict, spent: np.ndarray, effort: float) -> float:
    found = accuracy_on_the_way(row)
    return float(np.interp(effort, spent[list(found)], list(found.values())))


def write_report(study: Study, rows: list[dict], stem: Path) -> None:
    """Write STEM.md."""
    done = {(row["task"], row["variant"], row["seed"]): row for row in rows}
    parts = ["# Dynamic sampling against none\n", HOW_TO_READ]
    for task in study.tasks:
        pairs = [
            (row, done[task, DYNAMIC, seed])
            for (of, variant, seed), row in done.items()
            if (of, variant) == (task, BASELINE) and (task, DYNAMIC, seed) in done
        ]
        if len(pairs) < 2:
            continue
        lines = []
        for name, measure in EFFORTS.items():
            accuracies, ends = [], []
            for pair in pairs:
                spent = [measure(row) for row in pair]
                end = min(s[-1] for s in spent)
                accuracies.append([accuracy_at(row, s, end) for row, s in zip(pair, spent, strict=True)])
                ends.append(end)
            without, dynamic = np.transpose(accuracies)
            entry = compare_pairs(dynamic, without)
            shown = f"{difference(entry)}, {p_value(entry['p_t'])}"
            lines.append([f"{np.mean(ends):.3g} {name}", f"{without.mean():.3f}", f"{dynamic.mean():.3f}", shown])
        before = np.mean([row["accuracy_before"] for row, _ in pairs])
        parts.append(f"## `{task}`, {len(pairs)} seeds, {before:.3f} before training\n")
        parts.append(table(["after", "DAPO", "with dynamic sampling", "difference"], lines))
        logged = {name: np.mean([curve_mean(b["dynamic_sampling"][name]) for _, b in pairs]) for name in LOGGED}
        parts.append(", ".join(f"{LOGGED[name]} {value:.2f}" for name, value in logged.items()) + ".\n")
    stem.with_suffix(".md").write_text("\n".join(parts))
