"""
A study from scratch that needs no hub: a model of some 11 M parameters, warmed up on the longest task of
`scripts.studies.tasks`, then trained with DAPO, with DelTA, and with losers weighted by 0.2; three seeds each.

Every run has as many rollout batches as fit into the time, estimated from a trial of two; at most 60. Several
processes share the runs, seed by seed: a model this small leaves most of a GPU idle, and generation waits for the
processor. Learning rates are not tuned. 1 GB of GPU memory for each process, and 2 GB while test problems are sampled.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import set_seed

from ...benchmarks.timing import spread
from ...studies.plans import DAPO, Study
from ...studies.runs import Run, append_row, claimed, read_rows, run_key, study_runs
from ...studies.study import Runner, accuracy
from ...studies.tasks import TASKS, Task
from ...studies.tasks.models import demonstrations, make_model, tokenizer_of, warm_up
from .stage import ROOT, Stage, read


SIZES = {
    False: {"task": "longest", "width": 640, "layers": 3, "warm_up": 600, "rollouts": 60, "seeds": 3, "problems": 512},
    True: {"task": "arithmetic", "width": 32, "layers": 1, "warm_up": 4, "rollouts": 1, "seeds": 1, "problems": 16},
}
WARM_UP_RATE = 1e-3  # the study's 5e-3 is for a tenth of the width
RATE = 5e-5  # likewise, 2.5e-4
VARIANTS = {
    "dapo": DAPO,
    "delta": {"token_credit": "delta"},
    "losers_0.2": {"token_credit": "side_weights", "token_credit_kwargs": {"losers": 0.2}},
}
STUDY = Study("gpu", VARIANTS, {}, samples=2, sections=())
CROWDED = 1.5  # how much longer a rollout batch takes beside other processes: a guess
START = 30  # seconds until a process is at work


def run(stage: Stage) -> None:
    size = SIZES[stage.dry]
    cuda = torch.cuda.is_available()
    workers = max(1, min(4, len(os.sched_getaffinity(0)) // 4)) if cuda else 1
    stage.settings = {**size, "variants": VARIANTS, "learning_rate": RATE, "warm_up_rate": WARM_UP_RATE}
    models, rows = stage.work / "models", stage.work / "rows.jsonl"
    if not (stage.go_on() and (models / size["task"] / "config.json").is_file()):
        rows.unlink(missing_ok=True)  # rows of another start model
        stage.results = {}
        make_start_model(TASKS[size["task"]], models / size["task"], size, stage)
        stage.save()
    if "rollouts" not in stage.results:
        stage.results["rollouts"] = choose_rollouts(stage, size, workers)
    stage.save()
    command = [sys.executable, "-m", "scripts.gpu.stages.study", str(stage.path), str(stage.work), str(stage.deadline)]
    start = time.time()
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(workers)]
    try:
        while any(process.poll() is None for process in processes):
            time.sleep(0.2)
            if stage.left() < 5:
                break
            tell(stage, rows)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        tell(stage, rows)
    stage.results["seconds_of_runs"] = round(time.time() - start, 1)
    done = set(map(run_key, read_rows(rows)))
    stage.left_out += [f"{run.variant}, seed {run.seed}" for run in all_runs(size) if run.key not in done]
    failed = [process.returncode for process in processes if process.returncode not in (0, -signal.SIGTERM)]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(processes)} processes failed; what they said is above")


def make_start_model(task: Task, folder: Path, size: dict, stage: Stage) -> None:
    set_seed(0)
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
        learning_rate=WARM_UP_RATE,
        description=f"{task.name}: warm-up",
    )
    stage.results["warm_up_seconds"] = time.perf_counter() - start
    stage.results["parameters"] = sum(p.numel() for p in model.parameters())
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def runner(stage: Stage, size: dict, rollouts: int) -> Runner:
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Runner(STUDY, {"study": rollouts, "tune": rollouts}, size["problems"], device, stage.work / "models")


def choose_rollouts(stage: Stage, size: dict, workers: int) -> int:
    """How many rollout batches each run can have in the time that is left, estimated from a trial of two."""
    if stage.dry:
        return size["rollouts"]
    trial = runner(stage, size, 2)
    trainer = trial.train(Run("tune", size["task"], "delta", RATE, 0))
    seconds = trainer.state.log_history[-1]["train_runtime"] / 2
    stage.results["trial_seconds"] = seconds
    rounds = -(-len(all_runs(size)) // workers)
    fit = (stage.left() - START) / rounds / (CROWDED * seconds) - 8  # 8 for the test problems
    return max(5, min(size["rollouts"], int(fit)))


def all_runs(size: dict) -> list[Run]:
    return study_runs({(size["task"], variant): RATE for variant in VARIANTS}, range(size["seeds"]))


def tell(stage: Stage, path: Path) -> None:
    """Write the results of the finished runs into the stage's JSON, if there is a new one."""
    rows = read_rows(path)
    if not rows or len(rows) == len(stage.results.get("rows", ())):
        return
    kept = ("variant", "seed", "reward", "length", "entropy", "seconds", "accuracy_before", "accuracy_after")
    stage.results["rows"] = [{name: row[name] for name in (*kept, "credit_seconds")} for row in rows]
    by_seed = {(row["variant"], row["seed"]): row for row in rows}
    stage.results["variants"] = {}
    for variant in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == variant]
        pairs = [(row, by_seed["dapo", row["seed"]]) for row in mine if ("dapo", row["seed"]) in by_seed]
        stage.results["variants"][variant] = {
            "accuracy_before": statistics.fmean(row["accuracy_before"] for row in mine),
            "accuracy_after": spread([row["accuracy_after"] for row in mine]),
            "mean_reward": spread([statistics.fmean(row["reward"]) for row in mine]),
            "seconds": spread([row["seconds"] for row in mine]),
            "above_dapo": [row["accuracy_after"] - other["accuracy_after"] for row, other in pairs],
        }
    stage.save()


def work(path: Path, folder: Path, deadline: float) -> None:
    """One process: do runs that no other has taken, while one is expected to end in time."""
    torch.set_num_threads(1)
    told = read(path)
    assert told is not None
    stage = Stage("study", path.parent, folder, deadline)
    size, rows = told["settings"], folder / "rows.jsonl"
    ours = runner(stage, size, told["results"]["rollouts"])
    for run in all_runs(size):
        with claimed(run, folder / "locks") as mine:
            found = read_rows(rows)
            if not mine or run.key in set(map(run_key, found)):
                continue
            if 1.1 * max((row["seconds"] for row in found), default=0.0) > stage.left():
                return
            row = ours(run)
            append_row(rows, row)
            before, after = (accuracy(row[f"solved_{when}"]) for when in ("before", "after"))
            print(run.variant, run.seed, f"{before:.3f} -> {after:.3f}", f"{row['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
