"""A study's rows, one per finished run, and how several processes share its runs."""

import fcntl
import json
import lzma
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


KEY = ("phase", "task", "variant", "learning_rate", "seed")  # what tells a study's rows apart


@dataclass(frozen=True)
class Run:
    phase: str  # of the plan's `phases`
    task: str
    arm: str
    learning_rate: float
    seed: int

    @property
    def key(self) -> tuple:
        return (self.phase, self.task, self.arm, self.learning_rate, self.seed)


def run_key(row: dict) -> tuple:
    return tuple(row[name] for name in KEY)


class Rows:
    """Finished runs, which are looked up by phase, task and arm."""

    def __init__(self, rows: list[dict]):
        self.rows = rows

    @cached_property
    def keys(self) -> set[tuple]:
        return set(map(run_key, self.rows))

    @cached_property
    def _by_arm(self) -> dict[tuple, list[dict]]:
        found = defaultdict(list)
        for row in self.rows:
            phase, task, arm, *_ = run_key(row)
            found[phase, task, arm].append(row)
        return found

    def of(self, phase: str, task: str, arm: str) -> list[dict]:
        return self._by_arm.get((phase, task, arm), [])

    def best_tuned(self, task: str, arms: list[str]) -> tuple[str, float]:
        """Arm and learning rate with the highest mean training reward in the second half of the tuning runs."""
        rewards = defaultdict(list)
        for arm in arms:
            for row in self.of("tune", task, arm):
                curve = row["reward"]
                half = len(curve) // 2
                second_half = statistics.fmean(curve[half:])
                rewards[arm, row["learning_rate"]].append(second_half)
        means = {choice: statistics.fmean(of_choice) for choice, of_choice in rewards.items()}
        return max(means, key=means.__getitem__)


def read_rows(path: Path) -> Rows:
    """The rows of PATH.xz (a finished study) and of PATH. A line that a killed process left incomplete is no row."""
    packed = path.with_name(f"{path.name}.xz")
    lines = []
    if packed.is_file():
        lines += lzma.decompress(packed.read_bytes()).decode().splitlines()
    if path.is_file():
        lines += path.read_text().splitlines()
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return Rows(rows)


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
    """Do the runs that have no row yet, together with other processes; return when all have one."""
    while True:
        finished = read_rows(path).keys
        missing = [run for run in runs if run.key not in finished]
        if not missing:
            return
        done = False
        for run in missing:
            with claimed(run, locks) as mine:
                if mine and run.key not in read_rows(path).keys:
                    append_row(path, execute(run))
                    done = True
        if not done:
            time.sleep(wait_seconds)
