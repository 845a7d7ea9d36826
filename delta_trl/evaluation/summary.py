"""From samples to numbers: results.json and the table on screen."""

import json
import logging
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ..arguments.errors import UsageError
from ..files import write_json
from .metrics import avg_at_k, bootstrap_interval, pass_at_k, problem_means
from .sampling import describe
from .store import read_samples


logger = logging.getLogger(__name__)


class Samples:
    """
    What was sampled on one benchmark, as arrays of shape (problems, k).

    Attributes:
        rewards (`np.ndarray`): NaN where there is no reward.
        lengths (`np.ndarray`): In tokens, the end token included.
        truncated (`np.ndarray`): Whether the length limit cut it off.
    """

    def __init__(self, rows: list[dict], k: int):
        shape = (len(rows) // k, k)
        self.rewards = np.array([np.nan if row["reward"] is None else row["reward"] for row in rows]).reshape(shape)
        self.lengths = np.array([row["length"] for row in rows]).reshape(shape)
        self.truncated = np.array([row["truncated"] for row in rows]).reshape(shape)


def load_samples(folder: Path) -> tuple[dict, dict[str, Samples]]:
    """
    The settings of a finished evaluation, and its samples by benchmark, problems in order.

    Raises:
        UsageError: If samples are missing.
    """
    settings = json.loads((folder / "settings.json").read_text())
    rows: dict[str, list[dict]] = {name: [] for name in settings["benchmarks"]}
    for row in read_samples(folder):
        rows[row["benchmark"]].append({key: row[key] for key in ("reward", "length", "truncated")})
    k = settings["num_generations"]
    for name, found in rows.items():
        expected = settings["benchmarks"][name]["num_problems"] * k
        if len(found) != expected:
            raise UsageError(f"{folder} has {len(found)} of {expected} samples of {name}: finish the evaluation.")
    return settings, {name: Samples(found, k) for name, found in rows.items()}


def summarise(folder: Path) -> dict:
    """Write `results.json` of a finished evaluation and return what is in it."""
    settings, samples = load_samples(folder)
    results = {
        "settings": settings,
        "benchmarks": {name: numbers([one]) for name, one in samples.items()},
        "average": numbers(list(samples.values())),  # over problems: a benchmark weighs as much as it has
    }
    for name, one in results["benchmarks"].items():
        one["left_out"] = settings["benchmarks"][name]["left_out"]
        if one["unscored"]:
            logger.warning(
                f"{name}: {one['unscored']} of {samples[name].rewards.size} samples could not be scored and count "
                "neither as right nor as wrong."
            )
    write_json(results, folder / "results.json")
    return results


def numbers(samples: list[Samples]) -> dict:
    """The results on some benchmarks together, over all of their problems."""
    rewards = np.concatenate([one.rewards for one in samples])
    k = rewards.shape[1]
    powers = [2**i for i in range(k.bit_length()) if 2**i < k]
    low, high = bootstrap_interval([one.rewards for one in samples])
    return {
        "problems": len(rewards),
        "avg_at_k": number(avg_at_k(rewards)),
        "interval": [number(low), number(high)],
        "pass_at_k": {str(n): number(pass_at_k(rewards, n)) for n in (*powers, k)},
        "truncated": float(np.concatenate([one.truncated for one in samples]).mean()),
        "mean_length": float(np.concatenate([one.lengths for one in samples]).mean()),
        "unscored": int(np.isnan(rewards).sum()),
        "runs": [number(run) for run in problem_means(rewards.T)],
    }


def number(value: float | None) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if value is None or np.isnan(value) else float(value)


def show(results: dict) -> None:
    """Print the table."""
    settings = results["settings"]
    k = settings["num_generations"]
    sampling = describe(settings["temperature"], settings["top_p"])
    table = Table(title=f"{settings['model_name_or_path']}\n{sampling}, k = {k}")
    table.add_column("benchmark")
    for column in ("problems", f"avg@{k}", "95 % interval", f"pass@{k}", "truncated", "mean length", "unscored"):
        table.add_column(column, justify="right")
    rows = dict(results["benchmarks"])
    if len(rows) > 1:
        rows["average (by problems)"] = results["average"]
    for name, one in rows.items():
        table.add_row(
            name,
            str(one["problems"]),
            mean(one["avg_at_k"]),
            " – ".join(map(mean, one["interval"])),
            mean(one["pass_at_k"][str(k)]),
            f"{one['truncated']:.1%}",
            f"{one['mean_length']:.0f}",
            str(one["unscored"]),
        )
    print_table(table)


def print_table(table: Table) -> None:
    """Print it; into a file, in lines that are long enough."""
    console = Console(markup=False, emoji=False)  # names may have brackets and colons
    if not console.is_terminal:
        console = Console(markup=False, emoji=False, width=140)
    console.print(table)


def mean(value: float | None) -> str:
    """A mean reward, on the scale of the rewards, as training prints it."""
    return "?" if value is None else f"{value:.3f}"
