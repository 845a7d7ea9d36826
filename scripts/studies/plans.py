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

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from .rows import Rows, Run


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
        sections (`list[str]`): Where its runs are.
        outcomes (`list[str]`): Of `contrasts.OUTCOMES`, or `pass@K`. Each is a family of its own.
        contrasts (`list[str]`): `"a - b"`, arm a less arm b. Also `"a - 0.5 b - 0.5 c"`.
        tasks (`list[str]`): Tasks, or differences between tasks, written in the same way.
        unit (`str`):
            `"seed"`: each task by itself, a value per seed. `"pair"`: one value per task and seed, all tasks
            together. `"mean"`: the mean of the tasks, a value per seed. `"task"`: the mean of the seeds, a value per
            task.
        corrected_over (`str`):
            `"contrasts"` (of a task), `"tasks"` (of a contrast), `"both"` (all together) or `"nothing"`: no test.
    """

    title: str
    sections: list[str]
    outcomes: list[str]
    contrasts: list[str]
    tasks: list[str]
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
        runs = {}  # in place of a set, for the order
        for task, arm in section.cells:
            runs |= dict.fromkeys(self._tuning(section, task, arm))
        return sorted(runs, key=lambda run: run.seed)  # stable

    def _tuning(self, section: Section, task: str, arm: str) -> list[Run]:
        tuned = section.rate_of or self.tuned_as.get(arm, arm)
        arms = self.best_of.get(tuned, [tuned])
        rates = self.rates_of(task)
        if len(arms) == len(rates) == 1:
            return []
        seeds = by_task(self.tuning_seeds, task)
        return [Run("tune", task, one, rate, seed) for seed, rate, one in product(seeds, rates, arms)]

    def chosen(self, section: Section, task: str, arm: str, rows: Rows) -> tuple[str, float] | None:
        """The arm that a name stands for, and its learning rate. `None` while its tuning is not complete."""
        tuning = self._tuning(section, task, arm)
        if not tuning:
            return arm, self.rates_of(task)[0]
        if any(run.key not in rows.keys for run in tuning):
            return None
        arms = list(dict.fromkeys(run.arm for run in tuning))
        best, rate = rows.best_tuned(task, arms)
        return (best if arm in self.best_of else arm), rate

    def runs(self, section: Section, rows: Rows) -> list[Run]:
        """The section's runs, seed by seed, so that what is finished is always balanced. Needs the tuning's rows."""
        chosen = [(task, *self.chosen(section, task, arm, rows)) for task, arm in section.cells]
        return [Run(section.phase, *run, seed) for seed, run in product(self.seeds(section), chosen)]

    def seeds(self, section: Section) -> range:
        return range(self.first_seed, self.first_seed + section.seeds)

    def finished(self, section: Section, rows: Rows) -> dict[tuple[str, str], dict[int, dict]]:
        """Rows by task and arm, then by seed."""
        found = defaultdict(dict)
        for task, arm in section.cells:
            choice = self.chosen(section, task, arm, rows)
            if choice is None:
                continue
            chosen_arm, rate = choice
            for row in rows.of(section.phase, task, chosen_arm):
                if row["seed"] in self.seeds(section) and row["learning_rate"] == rate:
                    found[task, arm][row["seed"]] = row
        return found


def by_task(values: list | dict, task: str) -> list:
    return values.get(task, values["others"]) if isinstance(values, dict) else values


def terms(text: str) -> dict[str, float]:
    """`"a - 0.5 b"` as `{"a": 1.0, "b": -0.5}`."""
    weights = defaultdict(float)
    sign = 1
    for part in text.split(" - "):
        *weight, name = part.split()
        size = float(weight[0]) if weight else 1.0
        weights[name] += sign * size
        sign = -1  # of all but the first
    return weights


def read_plan(name: str) -> Plan:
    """
    Reads plans/NAME.yaml.

    Raises:
        `ValueError`: If a comparison names an arm or a task that its sections do not run.
    """
    path = FOLDER / f"{name}.yaml"
    data = yaml.safe_load(path.read_text())
    sections = {}
    for title, of_section in data.pop("sections").items():
        cells = []
        for part in of_section.pop("runs"):
            cells += product(part["tasks"], part["arms"])
        sections[title] = Section(title, cells=tuple(cells), **of_section)
    families = []
    for title, of_family in data.pop("families").items():
        families.append(read_family(title, of_family, sections))
    return Plan(name=name, sections=sections, families=tuple(families), **data)


def read_family(title: str, data: dict, sections: dict[str, Section]) -> Family:
    cells = []
    for name in data["sections"]:
        cells += sections[name].cells
    tasks_run = list(dict.fromkeys(task for task, _ in cells))
    arms_run = {arm for _, arm in cells}
    contrasts = []
    for less, arms in data.pop("contrasts").items():
        contrasts += [f"{arm} - {less}" for arm in arms]
    tasks = data.pop("tasks", tasks_run)
    named_arms = set().union(*map(terms, contrasts))
    named_tasks = set().union(*map(terms, tasks))
    unknown = named_arms - arms_run
    unknown |= named_tasks - set(tasks_run)
    family = Family(title, contrasts=contrasts, tasks=tasks, **data)
    if unknown or family.unit not in UNITS or family.corrected_over not in CORRECTED_OVER:
        said = ", ".join(sorted(unknown)) or (family.unit, family.corrected_over)
        raise ValueError(f"{title}: {said} is unknown.")
    return family
