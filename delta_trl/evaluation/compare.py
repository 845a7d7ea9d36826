"""`delta-trl eval --compare A B`: is A ahead of B?"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..arguments.errors import UsageError
from ..files import differences, in_words
from .metrics import avg_at_k, paired_bootstrap, run_means, scored_for_both
from .results import Samples, interval, mean, number, print_table
from .sampling import describe


# settings that may differ between two evaluations without a word
MODEL_SETTINGS = ("model_name_or_path", "model_revision", "source")


def main(args: Sequence[str]) -> None:
    """Compare two evaluations. Raises `UsageError` for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="delta-trl eval", allow_abbrev=False)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), required=True)
    try:
        show(compare(*parser.parse_args(args).compare))
    except ImportError as error:
        raise UsageError("Comparing evaluations needs scipy: pip install scipy.") from error


def compare(first: Path, second: Path) -> dict:
    """
    Test in two ways whether `first` is ahead, on every benchmark that both have finished and on all problems together.

    Args:
        first, second (`Path`): Output directories of two evaluations on the same problems.

    Raises:
        UsageError: If they have no benchmark in common, or their problems or rewards of one differ.
        ImportError: If scipy is missing.
    """
    a, b = map(_results, (first, second))
    common = [name for name in a if name in b]
    if not common:
        raise UsageError(
            f"No benchmark is finished both in {first} ({', '.join(a)}) and in {second} ({', '.join(b)})."
        )
    pairs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    changed: dict[str, tuple] = {}
    for name in common:
        different = differences(a[name]["settings"], b[name]["settings"])
        if refused := {key: values for key, values in different.items() if key in ("problems", "reward")}:
            raise UsageError(f"{name}: no problem can be compared with itself: {in_words(refused)}.")
        changed |= {key: values for key, values in different.items() if key not in MODEL_SETTINGS}
        pairs[name] = scored_for_both(
            Samples(first, name, a[name]["settings"]["num_generations"]).rewards,
            Samples(second, name, b[name]["settings"]["num_generations"]).rewards,
        )
    return {
        "models": [_describe(found[common[0]]["settings"]) for found in (a, b)],
        "different_settings": changed,
        "left_out": sorted(a.keys() ^ b.keys()),
        "benchmarks": {name: _tests([pair]) for name, pair in pairs.items()},
        "all": _tests(list(pairs.values())),
    }


def _results(folder: Path) -> dict[str, dict]:
    """The contents of its results files, by benchmark."""
    finished = (path for path in sorted(folder.glob("*.json")) if path.with_suffix(".jsonl").is_file())
    return {path.stem: json.loads(path.read_text()) for path in finished}


def _describe(settings: dict) -> str:
    sampling = describe(settings["temperature"], settings["top_p"])
    return f"{settings['model_name_or_path']}, {sampling}, k = {settings['num_generations']}"


def _tests(pairs: list[tuple[np.ndarray, np.ndarray]]) -> dict:
    """
    Numbers of the problems that are scored for both: a paired bootstrap over problems, and the paper's one-sided
    Mann–Whitney U test over evaluation runs, which needs two runs of each model.
    """
    from scipy.stats import mannwhitneyu

    a, b = zip(*pairs, strict=True)
    every = np.concatenate(a), np.concatenate(b)
    difference, low, high, p = map(number, paired_bootstrap(a, b))
    runs = [run_means(rewards) for rewards in every]
    test = mannwhitneyu(*runs, alternative="greater") if min(map(len, runs)) > 1 else None
    return {
        "problems": len(every[0]),
        "first": number(avg_at_k(every[0])),
        "second": number(avg_at_k(every[1])),
        "difference": difference,
        "interval": [low, high],
        "p": p,
        "u": test and float(test.statistic),
        "p_of_u": test and float(test.pvalue),
    }


def show(comparison: dict) -> None:
    """Print the table."""
    for key, (a, b) in comparison["different_settings"].items():
        print(f"warning: the evaluations differ in {key}: {a!r} and {b!r}")
    if comparison["left_out"]:
        print(f"not compared, finished in one only: {', '.join(comparison['left_out'])}")
    for name, model in zip("AB", comparison["models"], strict=True):
        print(f"{name}: {model}")
    print("p: one-sided, of A being ahead")
    rows = dict(comparison["benchmarks"])
    if len(rows) > 1:
        rows["all problems"] = comparison["all"]
    cells = [
        [
            name,
            str(one["problems"]),
            *(mean(one[key]) for key in ("first", "second", "difference")),
            interval(one["interval"]),
            _p(one["p"]),
            "–" if one["u"] is None else f"{one['u']:g}",
            _p(one["p_of_u"]),
        ]
        for name, one in rows.items()
    ]
    titles = ["benchmark", "problems", "A", "B", "A - B", "95 % interval", "p (bootstrap)", "U", "p (Mann–Whitney)"]
    print_table([titles, *cells])


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
