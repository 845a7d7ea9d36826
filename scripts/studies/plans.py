"""
A study's plan: plans/NAME.yaml, committed before the study's first row. Its head says in words what is asked and what
is concluded from what. The rest is data:

    phases             rollout batches of a run, and how many `looks` at the test problems on its way
    samples            of each test problem, at the looks and in the end
    problems           of the test problems: the first ones; by default all, 64 of a language task
    first_seed         of the runs that are compared
    rates              learning rates to try: a list, or lists by task with one for `others`
    tuning_seeds       likewise
    arms               options of `DeltaGRPOConfig`
    tuned_as           arms that run at the rate that was tuned for another arm
    best_of            names that stand for one of several arms, the one that tunes best on a task
    sections           runs, in their order: phase, seeds, `rate_of` (an arm whose rate all take), tasks and arms
    families           comparisons that are corrected together, see [`Family`]
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .rows import Rows, Run, run_key


FOLDER = Path(__file__).with_name("plans")
UNITS = ("seed", "pair", "mean", "task")
CORRECTED_OVER = ("contrasts", "tasks", "both", "nothing")


@dataclass(frozen=True)
class Section:
    """Runs at one length and one way to set learning rates."""

    name: str
    phase: str
    seeds: int
    cells: tuple[tuple[str, str], ...]  # of task and arm
    rate_of: str | None = None


@dataclass(frozen=True)
class Family:
    """
    Comparisons that are corrected together (Holm).

    Args:
        title (`str`): Its title in the report.
        sections (`tuple[str, ...]`): Where its runs are.
        outcomes (`tuple[str, ...]`): Of `contrasts.OUTCOMES`, or `pass@K`. Each is a family of its own.
        contrasts (`tuple[str, ...]`): `"a - b"`, arm a less arm b. Also `"a - 0.5 b - 0.5 c"`.
        tasks (`tuple[str, ...]`): Tasks, or differences between tasks, written in the same way.
        unit (`str`):
            `"seed"`: each task by itself, a value per seed. `"pair"`: one value per task and seed, all tasks
            together. `"mean"`: the mean of the tasks, a value per seed. `"task"`: the mean of the seeds, a value per
            task.
        corrected_over (`str`):
            `"contrasts"` (of a task), `"tasks"` (of a contrast), `"both"` (all together) or `"nothing"`: no test.
    """

    title: str
    sections: tuple[str, ...]
    outcomes: tuple[str, ...]
    contrasts: tuple[str, ...]
    tasks: tuple[str, ...]
    unit: str = "seed"
    corrected_over: str = "contrasts"


@dataclass(frozen=True)
class Plan:
    """A study. Its rows are results/NAME.jsonl and results/NAME.jsonl.xz."""

    name: str
    arms: dict[str, dict[str, Any]]
    phases: dict[str, dict[str, int]]
    samples: int
    rates: list | dict
    sections: dict[str, Section]
    families: tuple[Family, ...]
    problems: int | None = None
    first_seed: int = 0
    tuning_seeds: list | dict = field(default_factory=list)
    tuned_as: dict[str, str] = field(default_factory=dict)
    best_of: dict[str, list[str]] = field(default_factory=dict)

    def rates_of(self, task: str) -> list[float]:
        return [float(rate) for rate in by_task(self.rates, task)]

    def tuning(self, section: Section) -> list[Run]:
        """The section's tuning runs, seed by seed: none for arms that have nothing to choose."""
        runs: dict[Run, None] = {}
        for task, arm in section.cells:
            runs |= dict.fromkeys(self._tuning(section, task, arm))
        return sorted(runs, key=lambda run: run.seed)  # stable

    def _tuning(self, section: Section, task: str, arm: str) -> list[Run]:
        tuned = section.rate_of or self.tuned_as.get(arm, arm)
        arms, rates = self.best_of.get(tuned, [tuned]), self.rates_of(task)
        if len(arms) == len(rates) == 1:
            return []
        seeds = by_task(self.tuning_seeds, task)
        return [Run("tune", task, one, rate, seed) for seed in seeds for rate in rates for one in arms]

    def chosen(self, section: Section, task: str, arm: str, rows: Rows) -> tuple[str, float] | None:
        """The arm that a name stands for, and its learning rate. `None` while its tuning is not complete."""
        tuning = self._tuning(section, task, arm)
        if not tuning:
            return arm, self.rates_of(task)[0]
        if any(run.key not in rows.keys for run in tuning):
            return None
        best, rate = rows.best_tuned(task, list(dict.fromkeys(run.arm for run in tuning)))
        return (best if arm in self.best_of else arm), rate

    def runs(self, section: Section, rows: Rows) -> list[Run]:
        """The section's runs, seed by seed, so that what is finished is always balanced. Needs the tuning's rows."""
        chosen = [(task, *self.chosen(section, task, arm, rows)) for task, arm in section.cells]
        seeds = range(self.first_seed, self.first_seed + section.seeds)
        return [Run(section.phase, task, arm, rate, seed) for seed in seeds for task, arm, rate in chosen]

    def finished(self, section: Section, rows: Rows) -> dict[tuple[str, str], dict[int, dict]]:
        """Rows by task and arm, then by seed."""
        seeds = range(self.first_seed, self.first_seed + section.seeds)
        found: dict[tuple[str, str], dict[int, dict]] = {}
        for task, arm in section.cells:
            choice = self.chosen(section, task, arm, rows)
            of_arm = rows.of(section.phase, task, choice[0]) if choice else []
            kept = {row["seed"]: row for row in of_arm if row["seed"] in seeds and run_key(row)[3] == choice[1]}
            if kept:
                found[task, arm] = kept
        return found


def by_task(values: list | dict, task: str) -> list:
    return values.get(task, values["others"]) if isinstance(values, dict) else values


def terms(text: str) -> dict[str, float]:
    """`"a - 0.5 b"` as `{"a": 1.0, "b": -0.5}`."""
    weights: dict[str, float] = {}
    for i, part in enumerate(text.split(" - ")):
        *weight, name = part.split()
        size = (float(weight[0]) if weight else 1.0) * (1 if i == 0 else -1)
        weights[name] = weights.get(name, 0.0) + size
    return weights


def read_plan(name: str) -> Plan:
    """
    Reads plans/NAME.yaml.

    Raises:
        `ValueError`: If a comparison names an arm or a task that its sections do not run.
    """
    data = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    sections = {
        title: Section(
            title,
            of["phase"],
            of["seeds"],
            tuple((task, arm) for part in of["runs"] for task in part["tasks"] for arm in part["arms"]),
            of.get("rate_of"),
        )
        for title, of in data.pop("sections").items()
    }
    families = tuple(read_family(title, of, sections) for title, of in data.pop("families").items())
    return Plan(name=name, sections=sections, families=families, **data)


def read_family(title: str, data: dict, sections: dict[str, Section]) -> Family:
    cells = [cell for section in data["sections"] for cell in sections[section].cells]
    contrasts = tuple(f"{arm} - {less}" for less, arms in data.pop("contrasts").items() for arm in arms)
    tasks = tuple(data.pop("tasks", dict.fromkeys(task for task, _ in cells)))
    family = Family(title, tuple(data.pop("sections")), tuple(data.pop("outcomes")), contrasts, tasks, **data)
    unknown = {arm for text in contrasts for arm in terms(text)} - {arm for _, arm in cells}
    unknown |= {task for text in tasks for task in terms(text)} - {task for task, _ in cells}
    if unknown or family.unit not in UNITS or family.corrected_over not in CORRECTED_OVER:
        raise ValueError(f"{title}: {', '.join(sorted(unknown)) or (family.unit, family.corrected_over)} is unknown.")
    return family
