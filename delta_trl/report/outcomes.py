"""What the runs of a comparison reached, what can be said of it, and the files that say so."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..arguments.errors import UsageError
from ..evaluation.paired import Paired, conclusion, pair
from ..evaluation.results import mean, number, read_results, table
from ..files import write_atomically, write_json
from .figures import arms_plot
from .page import write_page
from .reader import Run, read_run


# From the best evidence to the weakest. The first one that a comparison has is its primary outcome.
OUTCOMES = ("accuracy", "eval_reward", "training_reward", "training_reward_at_end")
BENCHMARKS = "benchmarks"  # folder of a run with the results of `delta-trl eval`


def outcomes_of(run: Run, names: Sequence[str]) -> dict[str, float]:
    """
    What a finished run reached, by the names of `OUTCOMES`. Raises `UsageError` if it did not measure one of `names`.
    """
    found = {}
    rewards = run.logged("reward")
    if len(rewards):
        tenth = math.ceil(len(rewards) / 10)
        found["training_reward"] = rewards.mean()
        found["training_reward_at_end"] = rewards.tail(tenth).mean()
    if run.evaluations:
        last = [run.logged(key).iloc[-1] for key in run.evaluations]
        found["eval_reward"] = np.mean(last)
    files = (run.path / BENCHMARKS).glob("*.json")
    results = pd.DataFrame([read_results(path)["results"] for path in files])
    if len(results):  # each problem counts once, as in the table of `delta-trl eval`
        found["accuracy"] = np.average(results["avg_at_k"], weights=results["problems"])
    missing = [name for name in names if name not in found]
    if missing:
        raise UsageError(
            f"{run.path} measured no {', '.join(missing)}. Lower logging_steps or eval_steps, and compare in another "
            "folder."
        )
    return {name: float(found[name]) for name in names}


def write_outcomes(folder: Path, plan: dict[str, Any], seeds: Sequence[int], left_out: dict[int, str]) -> str:
    """
    Write compare.md, compare.json and compare.html. Returns the text of compare.md.

    Args:
        folder (`Path`): That of the comparison.
        plan (`dict`): The content of plan.json.
        seeds (`Sequence[int]`): Those of which all arms are finished. Nothing is read of other seeds.
        left_out (`dict[int, str]`): Of other seeds, a sentence that says why they are left out.

    Raises:
        UsageError: If a run did not measure what the plan compares.
    """
    rule = plan["rule"]
    primary = plan["primary"]
    names = plan["outcomes"]
    planned = len(plan["seeds"])
    runs = {}
    reached = {}
    means = [["arm", *names]]
    for arm in plan["arms"]:
        runs[arm] = [read_run(folder / f"seed-{seed}" / arm) for seed in seeds]
        reached[arm] = pd.DataFrame([outcomes_of(run, names) for run in runs[arm]])
        means.append([arm, *map(mean, reached[arm].mean())])
    tables = [means]
    pairs: list[Paired] = []
    waiting = planned - len(seeds) - len(left_out)
    if waiting:
        says = f"{waiting} of {planned} seeds are not finished. The test waits for them."
    elif len(seeds) < 2:
        says = "One seed cannot tell a difference from chance. Compare three or more."
    else:
        judged = {arm: found[primary].tolist() for arm, found in reached.items()}
        pairs = pair(judged, rule)
        says = f"Judged by {primary}: {conclusion(rule, pairs)}"
        tables.append(differences(primary, rule, pairs))
    of_seeds = ", ".join(map(str, seeds))
    notes = [f"Means over seeds {of_seeds}.", *left_out.values()]

    parts = ["# Comparison of token credit", says, *map(table, tables), *notes, ""]
    text = "\n\n".join(parts)
    write_atomically(text.encode(), folder / "compare.md")
    content = {
        "says": says,
        "seeds": seeds,
        "left_out": left_out,
        "means": {arm: found.mean().to_dict() for arm, found in reached.items()},
        "reached": {arm: found.to_dict("list") for arm, found in reached.items()},
        "differences": [{**asdict(one), "p": number(one.p)} for one in pairs],
    }
    write_json(content, folder / "compare.json")
    write_page(
        "compare.html.j2",
        folder / "compare.html",
        title=folder.resolve().name,
        verdict=says,
        tables=tables,
        notes=notes,
        plots=[arms_plot(runs)],
    )
    return text


def differences(primary: str, rule: str, pairs: Sequence[Paired]) -> list[list[str]]:
    """The table of paired differences."""
    rows = [[primary, "difference", "95 % interval, uncorrected", "p, corrected"]]
    for one in pairs:
        low = one.mean - one.half
        high = one.mean + one.half
        cells = [
            f"{rule} - {one.arm}",
            f"{one.mean:+.3f}",
            f"{low:+.3f} to {high:+.3f}",
            f"{one.p:.2g}",
        ]
        rows.append(cells)
    return rows
