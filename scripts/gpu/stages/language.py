"""
Does training learn on a GPU? SmolLM2-135M-Instruct adds three digits (`make language-model`), trained in full with
DAPO and with DelTA. The runs of the arms share the GPU, each in a process of its own that takes one core and 5 GB of
GPU memory; seed after seed, as many as the time allows.
"""

import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context

import torch

from ...benchmarks.timing import spread
from ...studies.plans import Plan
from ...studies.rows import Run
from ...studies.tasks.language import MODEL
from .stage import Stage


ARMS = {
    "dapo": {"token_credit": "none", "loss_type": "dapo"},
    "delta": {"token_credit": "delta"},
}
SIZES = {
    False: {"task": "sums", "rollouts": 20, "seeds": 3, "problems": 128, "learning_rate": 1e-5},
    True: {"task": "arithmetic", "rollouts": 1, "seeds": 1, "problems": 8, "learning_rate": 2.5e-4},
}
KEPT = (
    "variant",
    "seed",
    "reward",
    "length",
    "entropy",
    "grad_norm",
    "step_seconds",
    "seconds",
    "accuracy_before",
    "accuracy_after",
)


def run(stage: Stage) -> None:
    size = stage.settings = {**SIZES[stage.dry], "arms": ARMS}
    if not stage.dry and not (MODEL / "LICENSE").exists():
        stage.leave_out(f"{MODEL} is not there: `make language-model`, or README.md, Without network")
        return
    stage.go_on()
    rows = stage.results.setdefault("rows", [])
    done = {(row["variant"], row["seed"]) for row in rows}
    pool = ProcessPoolExecutor(len(ARMS), mp_context=get_context("spawn"))
    try:
        futures = {}
        for seed, arm in product(range(size["seeds"]), ARMS):
            if (arm, seed) not in done:
                futures[pool.submit(train, size, arm, seed)] = f"{arm}, seed {seed}"
        for future in as_completed(futures, timeout=max(1.0, stage.left())):
            row = future.result()
            rows.append({name: row[name] for name in KEPT})
            sum_up(stage)
            stage.save()
    except TimeoutError:
        for future, name in futures.items():
            if not future.done():
                stage.leave_out(f"{name}: no time was left")
    finally:
        for process in list(pool._processes.values()):
            process.kill()


def train(size: dict, arm: str, seed: int) -> dict:
    """The row of a run, in a process of its own."""
    from ...studies.training import Runner  # imports TRL

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    plan = Plan(
        name="gpu",
        arms=ARMS,
        phases={"study": {"rollouts": size["rollouts"]}},
        samples=2,
        problems=size["problems"],
        rates=[size["learning_rate"]],
        sections={},
        families=(),
    )
    runner = Runner(plan, "cuda" if torch.cuda.is_available() else "cpu")
    return runner(Run("study", size["task"], arm, size["learning_rate"], seed))


def sum_up(stage: Stage) -> None:
    """What each arm's rows say, and its differences from DAPO, seed by seed."""
    rows = stage.results["rows"]
    of_dapo = {row["seed"]: row["accuracy_after"] for row in rows if row["variant"] == "dapo"}
    lines = [
        "| arm | accuracy before | after | quartiles | above DAPO, by seed | s a run |",
        "|---|---|---|---|---|---|",
    ]
    for arm in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == arm]
        before = statistics.fmean(row["accuracy_before"] for row in mine)
        after = spread([row["accuracy_after"] for row in mine])
        low, high = after["quartiles"]
        above = []
        for row in mine:
            if row["seed"] in of_dapo:
                above.append(f"{row['accuracy_after'] - of_dapo[row['seed']]:+.3f}")
        cells = [
            arm,
            f"{before:.3f}",
            f"{after['median']:.3f}",
            f"{low:.3f} to {high:.3f}",
            ", ".join(above),
            f"{statistics.median(row['seconds'] for row in mine):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    stage.text = "\n".join(lines)
