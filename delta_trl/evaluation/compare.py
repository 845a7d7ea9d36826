"""`delta-trl eval --compare A B`: is A ahead of B?"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..arguments.errors import UsageError
from ..files import differences, in_words
from .metrics import bootstrap_interval, problem_means
from .results import interval, mean, read_results, read_samples, table


def main(args: Sequence[str]) -> None:
    """Compare two evaluations, and print a table. Raises `UsageError` for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="delta-trl eval", allow_abbrev=False)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), required=True)
    first, second = parser.parse_args(args).compare
    a, b = read_settings(first), read_settings(second)
    shared = [name for name in a if name in b]
    if not shared:
        raise UsageError(f"No benchmark is finished in both: {', '.join(a) or 'none'} and {', '.join(b) or 'none'}.")
    pairs = {name: read_pair(name, first, second, a[name], b[name]) for name in shared}
    if left_out := sorted(a.keys() ^ b.keys()):
        print(f"not compared, finished in one only: {', '.join(left_out)}")
    same: dict[str, list[str]] = {}  # benchmarks by what differs
    for name in shared:
        words = in_words(differences(a[name], b[name])) or "nothing is different"
        same.setdefault(words, []).append(name)
    for words, names in same.items():
        print(f"{', '.join(names)}, from A to B: {words}")
    rows = [["benchmark", "problems", "A", "B", "A - B", "95 % interval"]]
    for name, pair in pairs.items():
        rows.append([name, *compare(*pair)])
    if len(pairs) > 1:
        every_a, every_b = zip(*pairs.values(), strict=True)
        rows.append(["all problems", *compare(np.concatenate(every_a), np.concatenate(every_b))])
    print(table(rows))


def read_settings(folder: Path) -> dict[str, dict]:
    """The settings and versions of the benchmarks that are finished in a folder, by name."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        if path.with_suffix(".jsonl").is_file():
            content = read_results(path)
            found[path.stem] = content["settings"] | {"versions": content.get("versions", {})}
    return found


def read_pair(name: str, first: Path, second: Path, of_first: dict, of_second: dict) -> tuple[np.ndarray, np.ndarray]:
    """
    Mean rewards (P,) of the problems of a benchmark in two folders, of those that are scored in both. Raises
    `UsageError` if its problems or rewards differ, by their settings.
    """
    different = differences(of_first, of_second)
    if refused := {key: values for key, values in different.items() if key in ("problems", "reward")}:
        raise UsageError(f"{name}: no problem can be compared with itself: {in_words(refused)}.")
    a = problem_means(read_samples(first, name, of_first)[0])
    b = problem_means(read_samples(second, name, of_second)[0])
    both = ~np.isnan(a + b)
    return a[both], b[both]


def compare(a: np.ndarray, b: np.ndarray) -> list[str]:
    """Cells of the table: number of problems, both means, the mean of paired differences, its interval."""
    means = (mean(values.mean() if len(a) else None) for values in (a, b, a - b))
    return [str(len(a)), *means, interval(bootstrap_interval(a - b))]
