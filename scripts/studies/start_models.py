"""
Warm up the start models of the studies, by supervised training on demonstrations of a task's careless teacher, or on
right ones of other problems (the task's `practice`). No test problem is shown. Everything is seeded; a model takes one
to ten minutes on one core:

    python -m scripts.studies.start_models                                         # scripts/studies/models/*
    python -m scripts.studies.start_models --names taught_more own_fewer own_more  # outputs/models/studies/*: weights
"""

import argparse
from pathlib import Path

from .tasks import OTHER_STARTS, TASKS


FOLDER = Path(__file__).with_name("models")
OTHERS = Path(__file__).parents[2] / "outputs" / "models" / "studies"


def folder_of(task: str) -> Path:
    """Where a task's start model is."""
    return (FOLDER if task in TASKS else OTHERS) / task


def main() -> None:
    from .tasks.models import make_task_model  # needs torch, which folders do not

    every = TASKS | OTHER_STARTS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", choices=every, default=list(TASKS), help="by default those in models/")
    args = parser.parse_args()
    for name in args.names:
        make_task_model(every[name], folder_of(name))


if __name__ == "__main__":
    main()
