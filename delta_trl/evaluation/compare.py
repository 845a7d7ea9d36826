"""`delta-trl eval --compare A B`: is A ahead of B?"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..arguments.errors import UsageError
from ..files import differences, in_words
from .metrics import bootstrap_interval, problem_means
from .results import described, interval, mean, number, print_table, read_samples


# settings that may differ between two evaluations without a word
MODEL_SETTINGS = ("model_name_or_path", "model_revision", "source")


def main(args: Sequence[str]) -> None:
    """Compare two evaluations, and print a table. Raises `UsageError` for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="delta-trl eval", allow_abbrev=False)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), required=True)
    first, second = parser.parse_args(args).compare
    a, b = map(read_settings, (first, second))
    pairs = read_pairs(first, second)
    rows = {name: paired([pair]) for name, pair in pairs.items()}
    if len(rows) > 1:
        rows["all problems"] = paired(list(pairs.values()))
    if left_out := sorted(a.keys() ^ b.keys()):
        print(f"not compared, finished in one only: {', '.join(left_out)}")
    changed = {key: values for name in pairs for key, values in differences(a[name], b[name]).items()}
    for key, values in changed.items():
        if key not in MODEL_SETTINGS:
            print(f"warning: the evaluations differ in {in_words({key: values})}")
    for label, settings in (("A", a), ("B", b)):
        print(f"{label}: {described(settings[next(iter(pairs))])}")
    cells = [
        [name, str(problems), *map(mean, means), interval(ends)] for name, (problems, means, ends) in rows.items()
    ]
    print_table([["benchmark", "problems", "A", "B", "A - B", "95 % interval"], *cells])


def read_settings(folder: Path) -> dict[str, dict]:
    """The settings of the benchmarks that are finished in a folder, by name."""
    finished = (path for path in sorted(folder.glob("*.json")) if path.with_suffix(".jsonl").is_file())
    return {path.stem: json.loads(path.read_text())["settings"] for path in finished}


def read_pairs(first: Path, second: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """
    By benchmark that both have finished, the mean rewards (P,) of its problems in both, of those that are scored in
    both.

    Args:
        first, second (`Path`): Output directories of two evaluations on the same problems.

    Raises:
        UsageError: If they have no benchmark in common, or their problems or rewards of one differ.
    """
    a, b = map(read_settings, (first, second))
    pairs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name in a:
        if name not in b:
            continue
        different = differences(a[name], b[name])
        if refused := {key: values for key, values in different.items() if key in ("problems", "reward")}:
            raise UsageError(f"{name}: no problem can be compared with itself: {in_words(refused)}.")
        folders = ((first, a[name]), (second, b[name]))
        x, y = (problem_means(read_samples(path, name, of["num_generations"])[0]) for path, of in folders)
        both = ~np.isnan(x + y)
        pairs[name] = x[both], y[both]
    if not pairs:
        raise UsageError(
            f"No benchmark is finished both in {first} ({', '.join(a)}) and in {second} ({', '.join(b)})."
        )
    return pairs


def paired(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[int, list[float | None], list[float | None]]:
    """
    Compare two models on some benchmarks together. The bootstrap draws the same problems for both.

    Args:
        pairs (`Sequence[tuple[np.ndarray, np.ndarray]]`): As [`read_pairs`], of each benchmark.

    Returns:
        `tuple[int, list, list]`: The number of problems; the means of the first and the second model and their
        difference; the ends of its interval of 95 %.
    """
    a, b = map(np.concatenate, zip(*pairs, strict=True))
    means = [number(values.mean()) if len(values) else None for values in (a, b, a - b)]
    return len(a), means, list(map(number, bootstrap_interval([x - y for x, y in pairs])))
