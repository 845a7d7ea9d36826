"""
Warm up the start models of the studies, by supervised training on demonstrations of a task's careless teacher, or on
right ones of other problems (the task's `practice`). No test problem is shown. Everything is seeded; a model takes one
to ten minutes on one core:

    python -m scripts.studies.start_models                                         # scripts/studies/models/*
    python -m scripts.studies.start_models --names taught_more own_fewer own_more  # outputs/models/studies/*: weights
    python -m scripts.studies.start_models --names broad programs_narrow edits_narrow walks_narrow         # elicit

Those of the study `elicit` have 0.6 M parameters, as the quickstart's: one for each narrow task, and `broad`.
"""

import argparse
from pathlib import Path

from .tasks import EVERY_TASK, TASKS
from .tasks.families import BROAD
from .tasks.families import TASKS as FAMILIES


FOLDER = Path(__file__).with_name("models")
OTHERS = Path(__file__).parents[2] / "outputs" / "models" / "studies"
LARGER = {"width": 128, "layers": 4, "learning_rate": 3e-3}


def folder_of(task: str) -> Path:
    """Where a task's start model is."""
    return FOLDER / task if task in TASKS else OTHERS / (EVERY_TASK[task].start_model or task)


def main() -> None:
    from .tasks.models import broad_demonstrations, make_task_model  # needs torch, which folders do not

    made = {task.start_model or task.name: task for task in EVERY_TASK.values()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", choices=made, default=list(TASKS), help="by default those in models/")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name in args.names:
        task = made[name]
        shown = broad_demonstrations(args.seed) if name == BROAD else None
        make_task_model(task, folder_of(task.name), args.seed, shown, **(LARGER if task.name in FAMILIES else {}))


if __name__ == "__main__":
    main()
