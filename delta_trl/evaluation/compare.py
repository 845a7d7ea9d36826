"""`delta-trl eval --compare A B`: is A ahead of B?"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..arguments.errors import UsageError
from ..files import differences, in_words
from .metrics import bootstrap_interval, problem_means
from .results import interval, mean, read_samples, table


def main(args: Sequence[str]) -> None:
    """Compare two evaluations, and print a table. Raises `UsageError` for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="delta-trl eval", allow_abbrev=False)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), required=True)
    first, second = parser.parse_args(args).compare
    a, b = map(read_settings, (first, second))
    pairs = {name: read_pair(name, first, second, a[name], b[name]) for name in a if name in b}
    if not pairs:
        raise UsageError(f"No benchmark is finished in both: {', '.join(a) or 'none'} and {', '.join(b) or 'none'}.")
    if left_out := sorted(a.keys() ^ b.keys()):
        print(f"not compared, finished in one only: {', '.join(left_out)}")
    changed = {key: values for name in pairs for key, values in differences(a[name], b[name]).items()}
    print(f"from A to B: {in_words(changed) or 'nothing is different'}")
    rows = [["benchmark", "problems", "A", "B", "A - B", "95 % interval"]]
    rows += [[name, *compare(*pair)] for name, pair in pairs.items()]
    if len(pairs) > 1:
        rows.append(["all problems", *compare(*map(np.concatenate, zip(*pairs.values(), strict=True)))])
    print(table(rows))


def read_settings(folder: Path) -> dict[str, dict]:
    """The settings of the benchmarks that are finished in a folder, by name."""
    finished = (path for path in sorted(folder.glob("*.json")) if path.with_suffix(".jsonl").is_file())
    return {path.stem: json.loads(path.read_text())["settings"] for path in finished}


def read_pair(name: str, first: Path, second: Path, of_first: dict, of_second: dict) -> tuple[np.ndarray, np.ndarray]:
    """
    Mean rewards (P,) of the problems of a benchmark in two folders, of those that are scored in both. Raises
    `UsageError` if its problems or rewards differ, by their settings.
    """
    different = differences(of_first, of_second)
    if refused := {key: values for key, values in different.items() if key in ("problems", "reward")}:
        raise UsageError(f"{name}: no problem can be compared with itself: {in_words(refused)}.")
    a = problem_means(read_samples(first, name, of_first["num_generations"])[0])
    b = problem_means(read_samples(second, name, of_second["num_generations"])[0])
    both = ~np.isnan(a + b)
    return a[both], b[both]


def compare(a: np.ndarray, b: np.ndarray) -> list[str]:
    """Cells of the table: number of problems, both means, the mean of paired differences, its interval."""
    means = (mean(values.mean() if len(a) else None) for values in (a, b, a - b))
    return [str(len(a)), *means, interval(bootstrap_interval(a - b))]
