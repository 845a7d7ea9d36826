"""
Does training learn on a GPU? SmolLM2-135M-Instruct adds three digits (`make language-model`), trained in full with
DAPO and with DelTA. The runs of the arms share the GPU, each in a process of its own that takes one core and 5 GB of
GPU memory; seed after seed, as many as the time allows.
"""

import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
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
KEPT = ("variant", "seed", "reward", "length", "entropy", "grad_norm", "step_seconds", "seconds")


def run(stage: Stage) -> None:
    size = stage.settings = {**SIZES[stage.dry], "arms": ARMS}
    if not stage.dry and not (MODEL / "LICENSE").exists():
        stage.leave_out(f"{MODEL} is not there: `make language-model`, or README.md, Without network")
        return
    stage.go_on()
    rows = stage.results.setdefault("rows", [])
    done = {(row["variant"], row["seed"]) for row in rows}
    wanted = [(arm, seed) for seed in range(size["seeds"]) for arm in ARMS if (arm, seed) not in done]
    pool = ProcessPoolExecutor(len(ARMS), mp_context=get_context("spawn"))
    try:
        futures = {pool.submit(train, size, arm, seed): f"{arm}, seed {seed}" for arm, seed in wanted}
        for future in as_completed(futures, timeout=max(1.0, stage.left())):
            row = future.result()
            rows.append({name: row[name] for name in (*KEPT, "accuracy_before", "accuracy_after")})
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
    phases = {"study": {"rollouts": size["rollouts"]}}
    rates = [size["learning_rate"]]
    plan = Plan("gpu", ARMS, phases, samples=2, rates=rates, sections={}, families=(), problems=size["problems"])
    runner = Runner(plan, "cuda" if torch.cuda.is_available() else "cpu")
    return runner(Run("study", size["task"], arm, size["learning_rate"], seed))


def sum_up(stage: Stage) -> None:
    """What each arm's rows say, and its differences from DAPO, seed by seed."""
    rows = stage.results["rows"]
    by_seed = {(row["variant"], row["seed"]): row["accuracy_after"] for row in rows}
    lines = [
        "| arm | accuracy before | after | quartiles | above DAPO, by seed | s a run |",
        "|---|---|---|---|---|---|",
    ]
    for arm in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == arm]
        before = statistics.fmean(row["accuracy_before"] for row in mine)
        after = spread([row["accuracy_after"] for row in mine])
        low, high = after["quartiles"]
        pairs = [(row["accuracy_after"], by_seed.get(("dapo", row["seed"]))) for row in mine]
        above = ", ".join(f"{value - other:+.3f}" for value, other in pairs if other is not None)
        seconds = statistics.median(row["seconds"] for row in mine)
        lines.append(
            f"| {arm} | {before:.3f} | {after['median']:.3f} | {low:.3f} to {high:.3f} | {above} | {seconds:.0f} |"
        )
    stage.text = "\n".join(lines)
