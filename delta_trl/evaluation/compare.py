"""`delta-trl eval --compare A B`: is A ahead of B?"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from ..arguments.errors import UsageError
from ..files import write_json
from .metrics import avg_at_k, compare_runs, paired_bootstrap, scored_for_both
from .sampling import describe
from .summary import Samples, load_samples, mean, number, print_table


# settings that may differ between two evaluations without a warning
MODEL_SETTINGS = {"model_name_or_path", "model_revision", "model_fingerprint", "benchmarks"}


def main(args: Sequence[str]) -> None:
    """Compare two finished evaluations. Raises `UsageError` for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="delta-trl eval")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), required=True)
    parser.add_argument("--output_file", type=Path, help="also write the numbers to this JSON file")
    options = parser.parse_args(args)
    try:
        comparison = compare(*options.compare)
    except ImportError as error:
        raise UsageError(str(error)) from error
    show(comparison)
    if options.output_file:
        write_json(comparison, options.output_file)


def compare(first: Path, second: Path) -> dict:
    """
    Test in two ways whether `first` is ahead, for every benchmark and over all problems together.

    Args:
        first, second (`Path`): Output directories of two evaluations on the same problems.

    Raises:
        UsageError: If one is not finished, or their problems or rewards differ.
        ImportError: If scipy is missing.
    """
    (settings_a, a), (settings_b, b) = (_load(folder) for folder in (first, second))
    if a.keys() != b.keys():
        raise UsageError(
            f"The evaluations are on different benchmarks: {first} on {', '.join(a)}, {second} on {', '.join(b)}."
        )
    different = _differences(settings_a, settings_b, MODEL_SETTINGS)
    for name in a:
        one, other = settings_a["benchmarks"][name], settings_b["benchmarks"][name]
        if one["problems_fingerprint"] != other["problems_fingerprint"]:
            raise UsageError(f"The evaluations are on different problems of {name}: evaluate both on the same data.")
        if one["reward"] != other["reward"]:
            raise UsageError(
                f"The evaluations score {name} with different rewards, {one['reward']} and {other['reward']}: "
                "evaluate both with the same."
            )
        different |= {f"{name}.{key}": values for key, values in _differences(one, other, {"source"}).items()}
    return {
        "first": settings_a["model_name_or_path"],
        "second": settings_b["model_name_or_path"],
        "sampling": [describe(one["temperature"], one["top_p"]) for one in (settings_a, settings_b)],
        "different_settings": different,
        "benchmarks": {name: _tests([a[name]], [b[name]]) for name in a},
        "all": _tests([a[name] for name in a], [b[name] for name in a]),
    }


def _differences(first: dict, second: dict, expected: set[str]) -> dict[str, list]:
    return {
        key: [value, second.get(key)]
        for key, value in first.items()
        if key not in expected and value != second.get(key)
    }


def _load(folder: Path) -> tuple[dict, dict[str, Samples]]:
    for name in ("settings.json", "samples.jsonl", "results.json"):
        if not (folder / name).is_file():
            raise UsageError(f"{folder} is not a finished evaluation: it has no {name}.")
    return load_samples(folder)


def _tests(first: list[Samples], second: list[Samples]) -> dict:
    """All numbers are of the problems that are scored for both."""
    pairs = [scored_for_both(one.rewards, other.rewards) for one, other in zip(first, second, strict=True)]
    a, b = ([pair[i] for pair in pairs] for i in (0, 1))
    every = np.concatenate(a), np.concatenate(b)
    difference, low, high, p = map(number, paired_bootstrap(a, b))
    return {
        "problems": len(every[0]),
        "left_out": sum(len(samples.rewards) for samples in first) - len(every[0]),
        "first": number(avg_at_k(every[0])),
        "second": number(avg_at_k(every[1])),
        "mann_whitney": compare_runs(*every),
        "paired_bootstrap": {"difference": difference, "interval": [low, high], "p": p},
    }


def show(comparison: dict) -> None:
    """Print the table."""
    for key, (a, b) in comparison["different_settings"].items():
        print(f"warning: the evaluations differ in {key}: {a!r} and {b!r}")
    models = zip("AB", (comparison["first"], comparison["second"]), comparison["sampling"], strict=True)
    lines = [f"{name}: {model}, {sampling}" for name, model, sampling in models]
    table = Table(title="\n".join([*lines, "p: one-sided, of A being ahead"]))
    table.add_column("benchmark")
    for column in ("problems", "A", "B", "A - B", "95 % interval", "p (bootstrap)", "U", "p (Mann–Whitney)"):
        table.add_column(column, justify="right")
    rows = dict(comparison["benchmarks"])
    if len(rows) > 1:
        rows["all problems"] = comparison["all"]
    for name, one in rows.items():
        runs, paired = one["mann_whitney"], one["paired_bootstrap"]
        table.add_row(
            name,
            f"{one['problems']}" + (f" ({one['left_out']} left out)" if one["left_out"] else ""),
            mean(one["first"]),
            mean(one["second"]),
            mean(paired["difference"]),
            " – ".join(map(mean, paired["interval"])),
            "–" if paired["p"] is None else f"{paired['p']:.4f}",
            *(["–", "k = 1: no runs to compare"] if runs["p"] is None else [f"{runs['u']:g}", f"{runs['p']:.4f}"]),
        )
    print_table(table)
