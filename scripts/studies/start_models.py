"""
Warm up the start models of study.py and stability.py: one for each task of `scripts.studies.tasks`, by supervised
training on demonstrations of the task's careless teacher, or on right ones of other problems (the task's
`practice`). No test problem is shown. Everything is seeded; a model takes one to ten minutes on one core:

    python -m scripts.studies.start_models             # scripts/studies/models/*
    python -m scripts.studies.start_models --elicit    # outputs/models/elicit/*, which are not committed
    python -m scripts.studies.start_models --starts    # outputs/models/starts/*, likewise: for the study `weights`

Those of the study `elicit` have 0.6 M parameters, as the quickstart's: one for each of its narrow tasks, and `broad`
for all others. `start_rates.py` measures them.
"""

import argparse
from pathlib import Path

from .tasks import TASKS
from .tasks.families import BROAD
from .tasks.families import TASKS as ELICIT_TASKS
from .tasks.models import broad_demonstrations, make_task_model
from .tasks.starts import TASKS as START_TASKS


FOLDER = Path(__file__).with_name("models")
OTHERS = Path(__file__).parents[2] / "outputs" / "models"
ELICIT_FOLDER, STARTS_FOLDER = OTHERS / "elicit", OTHERS / "starts"
LARGER = {"width": 128, "layers": 4, "learning_rate": 3e-3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--elicit", action="store_true", help="those of the study `elicit`")
    which.add_argument("--starts", action="store_true", help="those of the study `weights`")
    parser.add_argument("--output-dir", type=Path)
    parser.add_argument("--tasks", nargs="+", metavar="NAME", help="start models to make, all by default")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.elicit:
        chosen, folder_of_all = ELICIT_TASKS, ELICIT_FOLDER
    elif args.starts:
        chosen, folder_of_all = START_TASKS, STARTS_FOLDER
    else:
        chosen, folder_of_all = TASKS, FOLDER
    tasks = {task.start_model or task.name: task for task in chosen.values()}
    if unknown := set(args.tasks or ()) - set(tasks):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(tasks)}")
    for name in args.tasks or tasks:
        folder = (args.output_dir or folder_of_all) / name
        shown = broad_demonstrations(args.seed) if name == BROAD else None
        make_task_model(tasks[name], folder, args.seed, shown, **(LARGER if args.elicit else {}))


if __name__ == "__main__":
    main()
