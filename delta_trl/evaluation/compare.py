"""`delta-trl eval --compare A B`: is A ahead of B?"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ..arguments.errors import UsageError
from ..files import differences, in_words
from .metrics import bootstrap_interval, problem_means
from .results import interval, mean, read_results, read_samples, table


def main(args: Sequence[str]) -> None:
    """Compare two evaluations, and print a table. Raises `UsageError` for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="delta-trl eval", allow_abbrev=False)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), required=True)
    folders = parser.parse_args(args).compare
    a, b = [read_settings(folder) for folder in folders]
    rows = [["benchmark", "problems", "A", "B", "A - B", "95 % interval"]]
    pairs = []
    for name in a:
        if name not in b:
            continue
        changed = differences(a[name], b[name])
        if "problems" in changed or "reward" in changed:
            raise UsageError(f"{name}: no problem can be compared with itself: {in_words(changed)}.")
        print(f"{name}, from A to B: {in_words(changed) or 'nothing is different'}")
        means = {}
        for side, folder, settings in zip("AB", folders, (a, b), strict=True):
            rewards, _, _ = read_samples(folder, name, settings[name])
            means[side] = problem_means(rewards)
        pair = pd.DataFrame(means).dropna()  # of the problems that are scored in both
        pairs.append(pair)
        rows.append([name, *cells(pair)])
    if not pairs:
        raise UsageError(f"No benchmark is finished in both, only {', '.join([*a, *b]) or 'none'} in one.")
    left_out = sorted(a.keys() ^ b.keys())
    if left_out:
        print(f"not compared, finished in one only: {', '.join(left_out)}")
    if len(pairs) > 1:
        rows.append(["all problems", *cells(pd.concat(pairs))])
    print(table(rows))


def read_settings(folder: Path) -> dict[str, dict]:
    """The settings and versions of the benchmarks that are finished in a folder, by name."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        if path.with_suffix(".jsonl").is_file():
            content = read_results(path)
            found[path.stem] = {**content["settings"], "versions": content.get("versions", {})}
    return found


def cells(pair: pd.DataFrame) -> list[str]:
    """Cells of the table: number of problems, both means, the mean of paired differences, its interval."""
    difference = pair["A"] - pair["B"]
    means = [mean(values.mean()) for values in (pair["A"], pair["B"], difference)]
    return [str(len(pair)), *means, interval(bootstrap_interval(difference))]
