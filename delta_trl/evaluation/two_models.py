"""`delta-trl eval --compare A B`: is A ahead of B?"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ..arguments.differences import differences, in_words
from ..arguments.errors import UsageError
from .metrics import bootstrap_interval, no_interval, problem_means
from .results import interval, mean, read_results, read_samples, table


def main(args: Sequence[str]) -> None:
    """Compare two evaluations, and print a table. Raises `UsageError` for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="delta-trl eval", allow_abbrev=False)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), required=True)
    a, b = parser.parse_args(args).compare
    in_a = finished_in(a)
    in_b = finished_in(b)
    in_one = ", ".join(sorted(in_a ^ in_b))
    pairs = {}
    for name in sorted(in_a & in_b):
        settings_a, means_a = read_evaluation(a, name)
        settings_b, means_b = read_evaluation(b, name)
        changed = differences(settings_a, settings_b)
        if "problems" in changed or "reward" in changed:
            raise UsageError(f"{name}: no problem can be compared with itself: {in_words(changed)}.")
        print(f"{name}, from A to B: {in_words(changed) or 'nothing is different'}")
        # problem by problem, since a template may put other text around each; of those that are scored in both
        pair = pd.DataFrame({"A": means_a, "B": means_b.set_axis(means_a.index)}).dropna()
        pair["A - B"] = pair["A"] - pair["B"]
        pairs[name] = pair
    if not pairs:
        raise UsageError(f"No benchmark is finished in both, only {in_one} in one.")
    if in_one:
        print(f"not compared, finished in one only: {in_one}")
    if len(pairs) > 1:
        pairs["all problems"] = pd.concat(pairs.values())
    rows = [["benchmark", "problems", "A", "B", "A - B", "95 % interval"]]
    for name, pair in pairs.items():
        means = map(mean, pair.mean())
        ends = no_interval(pair["A - B"]) or interval(bootstrap_interval(pair["A - B"]))
        rows.append([name, str(len(pair)), *means, ends])
    print(table(rows))


def finished_in(folder: Path) -> set[str]:
    """The names of the benchmarks that are finished in a folder. Raises `UsageError` if there are none."""
    names = {path.stem for path in folder.glob("*.json") if path.with_suffix(".jsonl").is_file()}
    if not names:
        problem = "has no finished benchmark" if folder.is_dir() else "is no folder"
        raise UsageError(f"--compare: {str(folder)!r} {problem}. Give two output_dir of `delta-trl eval`.")
    return names


def read_evaluation(folder: Path, name: str) -> tuple[dict, pd.Series]:
    """The settings of a finished benchmark, with versions, and the mean rewards of its problems."""
    content = read_results(folder / f"{name}.json")
    settings = content["settings"]
    (rewards, _, _), prompts = read_samples(folder, name, settings)
    return {**settings, "versions": content["versions"]}, problem_means(rewards, prompts)
