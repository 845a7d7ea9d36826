"""The numbers of an audit, from the scores and gradients on disk, and their table in the terminal."""

import json
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ..arguments.errors import UsageError
from ..evaluation.store import ChunkKey, read_samples
from ..evaluation.summary import print_table
from ..files import write_json
from .statistics import Marked, agreement, identification


UNIFORM = "uniform"  # credit without a rule; no rule has this name
REFERENCE = "reference"
SIDES = {"losers": -1, "winners": 1}


def gradient_file(folder: Path, chunk: ChunkKey) -> Path:
    """The file with the gradients of a rollout batch."""
    name, number = chunk
    return folder / "gradients" / f"{name}-{number}.npz"


def summarise(folder: Path) -> dict:
    """Write `results.json` of a finished audit, and return its content."""
    settings = json.loads((folder / "settings.json").read_text())
    lines: dict[str, list[dict]] = {}
    references: dict[str, list[int]] = {}
    for line in read_samples(folder):
        if line.get(REFERENCE):
            references.setdefault(line["benchmark"], []).append(line["chunk"])
        else:
            lines.setdefault(line["benchmark"], []).append(line)
    results: dict[str, Any] = {
        "settings": settings,
        "versions": {name: version(name) for name in ("delta-trl", "torch", "transformers")},
        "benchmarks": {},
    }
    for name, found in lines.items():
        rules: dict[str, dict] = {label: {} for label in [UNIFORM, *settings["rules"]]}
        reasons = Counter(settings["left_out"].get(name, {}))
        for side, sign in SIDES.items():
            marked = marked_of(found, list(settings["rules"]), sign, reasons)
            if marked.marks:
                for label, numbers in identification(marked, settings["seed"]).items():
                    rules[label][side] = numbers
        if name in references:
            chunks = sorted({line["chunk"] for line in found})
            for label, numbers in _agreement(folder, name, chunks, references[name]).items():
                rules[label]["gradient"] = numbers
        results["benchmarks"][name] = {
            "counts": _counts(found, reasons),
            "rules": rules,
            "metrics": _mean_metrics(found),
        }
    write_json(results, folder / "results.json")
    return results


def unit_scores(line: dict, label: str) -> np.ndarray:
    """Mean score of each unit of a completion, in order; units without a token are left out."""
    numbers = np.unique(line["unit"], return_inverse=True)[1]
    return np.bincount(numbers, line["scores"][label]) / np.bincount(numbers)


def marked_of(lines: list[dict], labels: list[str], sign: int, left_out: Counter) -> Marked:
    """A side's completions with contrast and marks. Those marked as a whole are counted in `left_out`."""
    chosen, marks = [], []
    for line in lines:
        own = np.isin(np.unique(line["unit"]), line["marked"])
        if np.sign(line["advantage"]) == sign and own.all():
            left_out["completions marked as a whole"] += 1
        elif np.sign(line["advantage"]) == sign and own.any():
            chosen.append(line)
            marks.append(own)
    prompts = {key: i for i, key in enumerate(dict.fromkeys((line["chunk"], line["group"]) for line in chosen))}
    return Marked(
        scores={label: [unit_scores(line, label) for line in chosen] for label in labels},
        marks=marks,
        groups=[prompts[line["chunk"], line["group"]] for line in chosen],
    )


def _agreement(folder: Path, name: str, chunks: list[int], references: list[int]) -> dict[str, dict]:
    batches = [_read_gradients(folder, (name, chunk)) for chunk in chunks]
    reference = np.stack([_read_gradients(folder, (name, chunk))[UNIFORM] for chunk in sorted(references)])
    gradients = {label: np.stack([batch[label] for batch in batches]) for label in batches[0]}
    return agreement(gradients, reference, UNIFORM)


def _read_gradients(folder: Path, chunk: ChunkKey) -> dict[str, np.ndarray]:
    with np.load(gradient_file(folder, chunk)) as file:
        return dict(zip(file["rules"].tolist(), file["gradients"], strict=True))


def check_not_empty(results: dict) -> None:
    """Raise `UsageError` if nothing could be audited in a benchmark."""
    for name, one in results["benchmarks"].items():
        if not any(one["rules"].values()):
            reasons = "; ".join(f"{count} {reason}" for reason, count in one["counts"]["left_out"].items())
            raise UsageError(f"{name}: nothing could be audited: {reasons or 'no completion has a label'}.")


def _counts(lines: list[dict], reasons: Counter) -> dict:
    rewards = [line["reward"] for line in lines if line["reward"] is not None]
    groups: dict[tuple, list[dict]] = {}
    for line in lines:
        groups.setdefault((line["chunk"], line["group"]), []).append(line)
    reasons["prompts whose completions all had the same reward"] += sum(
        not any(line["advantage"] for line in group) for group in groups.values()
    )
    for line in lines:
        if line["unlabelled"] and line["advantage"]:
            reasons[f"completions {line['unlabelled']}"] += 1
    reasons["completions without a reward"] += len(lines) - len(rewards)
    return {
        "prompts": len(groups),
        "completions": len(lines),
        "mean_reward": float(np.mean(rewards)) if rewards else None,
        "mean_length": float(np.mean([len(line["tokens"]) for line in lines])),
        "left_out": {reason: count for reason, count in reasons.items() if count},
    }


def _mean_metrics(lines: list[dict]) -> dict[str, dict[str, float]]:
    """Metrics that the rules logged: means over the rollout batches in which they are defined."""
    values: dict[str, dict[str, list[float]]] = {}
    for line in lines:
        for label, metrics in line.get("metrics", {}).items():
            for name, value in metrics.items():
                if value is not None and np.isfinite(value):
                    values.setdefault(label, {}).setdefault(name, []).append(value)
    return {label: {name: float(np.mean(v)) for name, v in metrics.items()} for label, metrics in values.items()}


def show(results: dict) -> None:
    """Print a table for each benchmark."""
    settings = results["settings"]
    for name, one in results["benchmarks"].items():
        counts = one["counts"]
        rewarded = "" if counts["mean_reward"] is None else f", mean reward {counts['mean_reward']:.3f}"
        table = Table(
            title=f"{name}: {counts['prompts']} prompts, {counts['completions']} completions{rewarded}\n"
            f"{settings['model_name_or_path']}, temperature {settings['temperature']:g}"
        )
        table.add_column("rule")
        for column in ("losers: AUC", "95 %", "winners: AUC", "95 %", "cosine", "- uniform", "bias cosine", "noise"):
            table.add_column(column, justify="right")
        for label, numbers in one["rules"].items():
            cells = []
            for side in SIDES:
                found = numbers.get(side)
                if not found:
                    cells += ["", ""]
                else:
                    cells += ["equal", ""] if found["equal"] else [f"{found['auc']:.3f}", _interval(found["interval"])]
            cells += _gradient_cells(numbers.get("gradient"), label)
            table.add_row(label, *cells)
        print_table(table)
        for reason, count in counts["left_out"].items():
            print(f"left out: {count} {reason}")


def _gradient_cells(found: dict | None, label: str) -> list[str]:
    if found is None:
        return [""] * 4
    half = found["difference_interval"]
    difference = "" if label == UNIFORM else f"{found['difference']:+.3f}"
    if difference and half:
        difference += f" ± {(half[1] - half[0]) / 2:.3f}"
    return [f"{found['cosine']:.3f}", difference, *(_number(found[key]) for key in ("bias_cosine", "noise"))]


def _interval(interval: list[float] | None) -> str:
    return f"{interval[0]:.2f} – {interval[1]:.2f}" if interval else "too few"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"
