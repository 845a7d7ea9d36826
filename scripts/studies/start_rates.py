"""
What the start models of the study `elicit` solve before training: pass@1, pass@16 and pass@64 of each task's first
test problems, by 64 samples of each, with 95 % intervals over problems.

    python -m scripts.studies.start_rates --problems 64    # half a minute for each task on one core
"""

import argparse

import numpy as np
import torch

from .plans import ELICIT, ELICIT_TASKS
from .runs import Run
from .statistics import solved_within
from .study import Runner, runner_of, task_of
from .token_gradients import interval


SAMPLES = 64
ALLOWED = {1: (0.15, 0.35), 64: (0.5, 0.85)}  # the plan's, by k of pass@k


def rates(runner: Runner, task: str, problems: int) -> dict[int, tuple[float, float]]:
    """Pass@k with the half-width of its interval, by k."""
    run = Run("tune", task, "dapo", 0.0, 0)
    solved = runner.solved(run, runner.load(task_of(run))[0], problems, SAMPLES)
    # of one problem that so many samples solve
    alone = {k: [solved_within(list(one), k) for one in np.eye(SAMPLES + 1, dtype=int)] for k in (1, 16, 64)}
    return {k: interval(np.repeat(values, solved)) for k, values in alone.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--tasks", nargs="+", choices=ELICIT_TASKS, default=ELICIT_TASKS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for task in args.tasks:
        found = rates(runner_of(ELICIT, task), task, args.problems)
        told = ", ".join(f"pass@{k} {mean:.3f} ± {half:.3f}" for k, (mean, half) in found.items())
        outside = [f"pass@{k}" for k, (low, high) in ALLOWED.items() if not low <= found[k][0] <= high]
        print(f"{task}: {told}{'; not as planned: ' * bool(outside)}{', '.join(outside)}", flush=True)


if __name__ == "__main__":
    main()
