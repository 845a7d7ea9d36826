"""What the runs of a comparison reached, what can be said of it, and the files that say so, a page among them."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..arguments.errors import UsageError
from ..evaluation.results import mean, number, read_results, table
from ..evaluation.seed_statistics import Paired, conclusion, pair
from ..files import write_atomically, write_json
from .figures import arms_plot, differences_plot
from .page import write_page, write_report
from .reader import Run, read_run


# From the best evidence to the weakest. The first one that a comparison has is its primary outcome.
OUTCOMES = ("accuracy", "eval_reward", "training_reward", "training_reward_at_end")
BENCHMARKS = "benchmarks"  # folder of a run with the results of `delta-trl eval`
BEFORE = "before"  # folder of a comparison with those of the model that all runs begin with
SHOWN = ("model_name_or_path", "adapter_name_or_path", "dataset_name", "benchmarks", "seeds")  # at the head


def accuracy_in(folder: Path, evaluation: dict[str, Any]) -> float:
    """
    Over all problems of a plan's benchmarks, as in the table of `delta-trl eval`; NaN without any. `folder` has a
    folder for each evaluation with other options.
    """
    paths = [folder / evaluation["folder"] / f"{name}.json" for name in evaluation["benchmarks"]]
    results = [read_results(path)["results"] for path in paths if path.is_file()]
    scored = pd.DataFrame([one for one in results if one["scored_problems"]])
    if scored.empty:
        return math.nan
    return float(np.average(scored["avg_at_k"], weights=scored["scored_problems"]))


def reached_before(folder: Path, runs: Sequence[Run], evaluation: dict[str, Any]) -> dict[str, float]:
    """What the model reached before training, by the names of `OUTCOMES`, as far as it was evaluated then."""
    evaluated = []
    for run in runs:
        for key in run.evaluations:
            evaluated.append(run.logged(key).get(0, math.nan))
    accuracy = accuracy_in(folder / BEFORE, evaluation)
    reached = {"accuracy": accuracy, "eval_reward": pd.Series(evaluated, dtype=float).mean()}
    return {name: value for name, value in reached.items() if not math.isnan(value)}


def outcomes_of(run: Run, names: Sequence[str], evaluation: dict[str, Any]) -> dict[str, float]:
    """
    What a finished run reached, by the names of `OUTCOMES`. Raises `UsageError` if it did not measure one of `names`.
    """
    reached = {}
    rewards = run.logged("reward")
    if len(rewards):
        tenth = math.ceil(len(rewards) / 10)
        reached["training_reward"] = rewards.mean()
        reached["training_reward_at_end"] = rewards.tail(tenth).mean()
    if run.evaluations:
        last = [run.logged(key).iloc[-1] for key in run.evaluations]
        reached["eval_reward"] = np.mean(last)
    accuracy = accuracy_in(run.path / BENCHMARKS, evaluation)
    if not math.isnan(accuracy):
        reached["accuracy"] = accuracy
    missing = [name for name in names if name not in reached]
    if missing:
        raise UsageError(
            f"{run.path} measured no {', '.join(missing)}. Lower logging_steps or eval_steps, and compare in another "
            "folder."
        )
    return {name: float(reached[name]) for name in names}


def minutes_of(run: Run) -> float:
    """How long a run trained, with generation; also if it was resumed."""
    steps = max(entry["step"] for entry in run.history)
    return run.logged("step_time").mean() * steps / 60


def write_outcomes(folder: Path, plan: dict[str, Any], seeds: Sequence[int], left_out: dict[int, str]) -> str:
    """
    Write compare.md, compare.json and compare.html, and the report of each run. Returns the text of compare.md.

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
    evaluation = plan["evaluation"]
    planned = len(plan["seeds"])
    runs = {}
    reached = {}
    for arm in plan["arms"]:
        runs[arm] = [read_run(folder / f"seed-{seed}" / arm) for seed in seeds]
        reached[arm] = pd.DataFrame([outcomes_of(run, names, evaluation) for run in runs[arm]])
    before = reached_before(folder, list(chain.from_iterable(runs.values())), evaluation)
    tables = [means(names, before, reached, runs)]
    pairs: list[Paired] = []
    waiting = planned - len(seeds) - len(left_out)
    if waiting:
        says = f"{waiting} of {planned} seeds are not finished. The test waits for them."
    elif len(seeds) < 2:
        says = "One seed cannot tell a difference from chance. Compare three or more."
    else:
        judged = {arm: by_seed[primary].tolist() for arm, by_seed in reached.items()}
        pairs = pair(judged, rule)
        says = f"Judged by {primary}: {conclusion(rule, pairs, judged)}"
        tables.append(differences(primary, rule, pairs))
    head = head_of({**plan["settings"], "benchmarks": evaluation["benchmarks"], "seeds": seeds})
    notes = ["Means over the seeds; minutes are those of a run's training.", *left_out.values()]
    reports: dict[str, dict[int, str]] = {}
    for arm, of_arm in runs.items():
        paths = [write_report(run.path, run.path / "report.html") for run in of_arm]
        links = [path.relative_to(folder).as_posix() for path in paths]
        reports[arm] = dict(zip(seeds, links, strict=True))

    described = "; ".join(f"{name}: {value}" for name, value in head.items())
    parts = ["# Comparison of token credit", described, *map(table, tables), says, *notes]
    text = "\n\n".join([*parts, ""])
    write_atomically(text.encode(), folder / "compare.md")
    content = {
        "says": says,
        "seeds": seeds,
        "left_out": left_out,
        "before": before,
        "means": {arm: by_seed.mean().to_dict() for arm, by_seed in reached.items()},
        "reached": {arm: by_seed.to_dict("list") for arm, by_seed in reached.items()},
        "differences": [{**asdict(paired), "p": number(paired.p)} for paired in pairs],
    }
    write_json(content, folder / "compare.json")
    write_page(
        "compare.html.j2",
        folder / "compare.html",
        title=folder.resolve().name,
        settings=head,
        verdict=says,
        tables=tables,
        notes=notes,
        plots=[arms_plot(runs, in_evaluation=primary == "eval_reward")],
        differences=differences_plot(primary, rule, pairs) if pairs else None,
        reports=reports,
    )
    return text


def head_of(settings: dict[str, Any]) -> dict[str, str]:
    """What was compared, for the head of the page."""
    head = {}
    for name in SHOWN:
        value = settings.get(name)
        if value:
            head[name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return head


def means(
    names: Sequence[str], before: dict[str, float], reached: dict[str, pd.DataFrame], runs: dict[str, list[Run]]
) -> list[list[str]]:
    """The table of what the model and each arm reached, and how long a run took."""
    rows = [["arm", *names, "minutes"]]
    if before:
        cells = [mean(before[name]) if name in before else "" for name in names]
        rows.append(["before training", *cells, ""])
    for arm, by_seed in reached.items():
        minutes = np.mean([minutes_of(run) for run in runs[arm]])
        rows.append([arm, *map(mean, by_seed.mean()), f"{minutes:.1f}"])
    return rows


def differences(primary: str, rule: str, pairs: Sequence[Paired]) -> list[list[str]]:
    """The table of paired differences."""
    rows = [[primary, "difference", "95 % interval, uncorrected", "p, corrected"]]
    for paired in pairs:
        low = paired.mean - paired.half
        high = paired.mean + paired.half
        rows.append([f"{rule} - {paired.arm}", f"{paired.mean:+.3f}", f"{low:+.3f} to {high:+.3f}", paired.test])
    return rows
