"""
Warm up the start models of scripts/study.py and scripts/stability.py: one for each task of `delta_trl.tasks`, by
supervised training on demonstrations of the task's careless teacher, or on right ones of other problems (the task's
`practice`). No test problem is shown. Everything is seeded; a model takes one to five minutes on one core:

    python scripts/make_study_models.py             # recipes/study/*
"""

import argparse
from pathlib import Path

from delta_trl.tasks import TASKS
from delta_trl.tasks.models import make_task_model


FOLDER = Path(__file__).resolve().parents[1] / "recipes" / "study"


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
