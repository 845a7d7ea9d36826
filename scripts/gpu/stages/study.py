"""
A study from scratch that needs no hub: a model of some 11 M parameters, warmed up on the longest task of
`scripts.studies.tasks`, then trained with DAPO, with DelTA, and with losers weighted by 0.2; three seeds each, of at
most 60 rollout batches. 1 GB of GPU memory for each process, and 2 GB while test problems are sampled.
"""

import sys
import time
from pathlib import Path

import torch
from transformers import set_seed

from ...studies.study import Runner
from ...studies.tasks import TASKS
from ...studies.tasks.models import demonstrations, make_model, tokenizer_of, warm_up
from .comparison import VARIANTS, Comparison
from .stage import Stage


def make_start_model(stage: Stage, size: dict, folder: Path) -> None:
    set_seed(0)
    task = TASKS[size["task"]]
    tokenizer = tokenizer_of(task)
    model = make_model(tokenizer, size["width"], size["layers"], task.max_length)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()
    warm_up(
        model,
        tokenizer,
        demonstrations(task, 0),
        steps=size["warm_up"],
        batch_size=64,
        learning_rate=size["warm_up_rate"],
        description=f"{task.name}: warm-up",
    )
    stage.results["warm_up_seconds"] = time.perf_counter() - start
    stage.results["parameters"] = sum(p.numel() for p in model.parameters())
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


WARM_UP = {"warm_up": 600, "warm_up_rate": 1e-3}  # the study's 5e-3 is for a tenth of the width
COMPARISON = Comparison(
    name="study",
    variants=VARIANTS,
    learning_rate=5e-5,  # the study's 2.5e-4 is for a tenth of the width
    size={"task": "longest", "rollouts": 60, "seeds": 3, "problems": 512, "width": 640, "layers": 3} | WARM_UP,
    dry_size={"task": "arithmetic", "rollouts": 1, "seeds": 1, "problems": 16, "width": 32, "layers": 1}
    | {**WARM_UP, "warm_up": 4},
    model=lambda size: size["task"],
    prepare=make_start_model,
    runner=Runner,
)
run = COMPARISON.run

if __name__ == "__main__":
    COMPARISON.work(*sys.argv[1:])
