"""
Warm up the start models of study.py and stability.py: one for each task of `scripts.studies.tasks`, by supervised
training on demonstrations of the task's careless teacher, or on right ones of other problems (the task's
`practice`). No test problem is shown. Everything is seeded; a model takes one to five minutes on one core:

    python -m scripts.studies.start_models             # scripts/studies/models/*
"""

import argparse
from pathlib import Path

from .tasks import TASKS
from .tasks.models import make_task_model


FOLDER = Path(__file__).with_name("models")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, default=FOLDER)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name in args.tasks:
        make_task_model(TASKS[name], args.output_dir / name, args.seed)


if __name__ == "__main__":
    main()
