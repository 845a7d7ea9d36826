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
from .page import render
from .reader import Run, read_run
from .text import visible


# From the best evidence to the weakest. The first one that a comparison has is its primary outcome.
OUTCOMES = ("accuracy", "eval_reward", "training_reward", "training_reward_at_end")
BENCHMARKS = "benchmarks"  # folder of a run with the results of `delta-trl eval`


def outcomes_of(run: Run, names: Sequence[str]) -> dict[str, float]:
    """
    What a finished run reached, by the names of `OUTCOMES`. Raises `UsageError` if it did not measure one of `names`.
    """
    _, rewards = run.logged("reward")
    found = {}
    if len(rewards):
        last_tenth = rewards[-math.ceil(len(rewards) / 10) :]
        found = {"training_reward": rewards.mean(), "training_reward_at_end": last_tenth.mean()}
    if last := [values[-1] for _, values in map(run.logged, run.evaluations)]:
        found["eval_reward"] = np.mean(last)
    if results := [read_results(path)["results"] for path in (run.path / BENCHMARKS).glob("*.json")]:
        problems = [one["problems"] for one in results]  # each counts once, as in the table of `delta-trl eval`
        found["accuracy"] = np.average([one["avg_at_k"] for one in results], weights=problems)
    if missing := [name for name in names if name not in found]:
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
    names, primary, rule = plan["outcomes"], plan["primary"], plan["rule"]
    runs = {arm: [read_run(folder / f"seed-{seed}" / arm) for seed in seeds] for arm in plan["arms"]}
    reached = {arm: pd.DataFrame([outcomes_of(run, names) for run in of_arm]) for arm, of_arm in runs.items()}
    rows = [[arm, *map(mean, found.mean())] for arm, found in reached.items()]
    tables, pairs = [[["arm", *names], *rows]], []
    if waiting := len(plan["seeds"]) - len(seeds) - len(left_out):
        says = f"{waiting} of {len(plan['seeds'])} seeds are not finished. The test waits for them."
    elif len(seeds) < 2:
        says = "One seed cannot tell a difference from chance. Compare three or more."
    else:
        pairs = pair({arm: found[primary].tolist() for arm, found in reached.items()}, rule)
        says = f"Judged by {primary}: {conclusion(rule, pairs)}"
        titles = [primary, "difference", "95 % interval, uncorrected", "p, corrected"]
        tables.append([titles, *(cells(rule, one) for one in pairs)])
    notes = [f"Means over seeds {', '.join(map(str, seeds))}.", *left_out.values()]

    text = "\n\n".join(["# Comparison of token credit", says, *map(table, tables), *notes, ""])
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
    parts = {"verdict": says, "tables": tables, "notes": notes, "plots": [arms_plot(runs)]}
    render("compare.html.j2", folder / "compare.html", title=visible(folder.resolve().name), style="", **parts)
    return text


def cells(rule: str, one: Paired) -> list[str]:
    """The row of a paired difference."""
    ends = f"{one.mean - one.half:+.3f} to {one.mean + one.half:+.3f}"
    return [f"{rule} - {one.arm}", f"{one.mean:+.3f}", ends, f"{one.p:.2g}"]
