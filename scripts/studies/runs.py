"""The runs of study.py, and how several processes share them: one row per finished run in one file."""

import fcntl
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


PROMPTS, GENERATIONS, MINIBATCHES = 16, 8, 4  # of a rollout batch; as many optimiser steps as mini-batches


@dataclass(frozen=True)
class Run:
    phase: str  # of `Study.rollouts`
    task: str  # of `Study.tasks`
    variant: str
    learning_rate: float
    seed: int

    @property
    def key(self) -> tuple:
        return (self.phase, self.task, self.variant, self.learning_rate, self.seed)


def read_rows(path: Path) -> list[dict]:
    """Finished runs. A line that a killed process left incomplete is no row."""
    rows = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def append_row(path: Path, row: dict) -> None:
    """One write in append mode, so that rows of several processes do not mix."""
    with open(path, "ab+") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"  # by a process killed in the middle of a row
        else:
            torn = False
        file.write(b"\n" * torn + json.dumps(row).encode() + b"\n")


def run_key(row: dict) -> tuple:
    return (row["phase"], row["task"], row["variant"], row["learning_rate"], row["seed"])


def tuning_runs(cells, rates: Callable, seeds: Callable) -> list[Run]:
    """Runs with every rate and tuning seed of its task, for each (task, variant)."""
    return [
        Run("tune", task, variant, rate, seed)
        for task in dict.fromkeys(task for task, _ in cells)
        for seed in seeds(task)
        for rate in rates(task)
        for other, variant in cells
        if other == task
    ]


def study_runs(rates: dict[tuple, float], seeds, phase: str = "study") -> list[Run]:
    """Runs with these learning rates of (task, variant); seed by seed, so that finished runs are always balanced."""
    return [Run(phase, task, variant, rate, seed) for seed in seeds for (task, variant), rate in rates.items()]


def best_tuned(rows: list[dict], task: str, variants) -> tuple[str, float]:
    """Variant and learning rate with the highest mean training reward in the second half of the tuning runs."""
    rewards: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        if (row["phase"], row["task"]) == ("tune", task) and row["variant"] in variants:
            second_half = row["reward"][len(row["reward"]) // 2 :]
            rewards.setdefault((row["variant"], row["learning_rate"]), []).append(statistics.fmean(second_half))
    return max(rewards, key=lambda choice: statistics.fmean(rewards[choice]))


@contextmanager
def claimed(run: Run, folder: Path) -> Iterator[bool]:
    """Whether this process may do the run. The system frees the lock of a process that ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "-".join(map(str, run.key)), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def work(runs: list[Run], path: Path, execute: Callable[[Run], dict], locks: Path, wait_seconds: float = 5.0) -> None:
    """Do the runs that have no row yet, together with whatever other processes do; return when all have one."""
    while True:
        finished = set(map(run_key, read_rows(path)))
        missing = [run for run in runs if run.key not in finished]
        if not missing:
            return
        done = False
        for run in missing:
            with claimed(run, locks) as mine:
                if mine and run.key not in set(map(run_key, read_rows(path))):
                    append_row(path, execute(run))
                    done = True
        if not done:
            time.sleep(wait_seconds)
