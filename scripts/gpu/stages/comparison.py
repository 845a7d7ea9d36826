"""
Variants of a training that are compared seed by seed: the work of the stages `language` and `study`.

Every run has as many rollout batches as fit into the time, estimated from a trial of two. Several processes share the
runs, seed by seed: a small model leaves most of a GPU idle, and generation waits for the processor. Learning rates are
not tuned.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ...benchmarks.timing import spread
from ...studies.plans import DAPO, Study, rule
from ...studies.runs import Run, append_row, claimed, read_rows, run_key, study_runs
from ...studies.study import Runner, accuracy
from .stage import ROOT, Stage, read


# what both stages compare
VARIANTS = {"dapo": DAPO, "delta": rule("delta"), "losers_0.2": rule("side_weights", losers=0.2)}
CROWDED = 1.5  # how much longer a rollout batch takes beside other processes: a guess
START = 30  # seconds until a process is at work


@dataclass(frozen=True)
class Comparison:
    """
    The runs of a stage. Its module has `run`, and calls `work` where it is the main program: in each of the processes
    that share the runs.

    Args:
        name (`str`): The stage.
        variants (`dict[str, dict]`): Options of each variant. The others are compared with `dapo`.
        learning_rate (`float`): Of all runs.
        size (`dict`): `task`, and the most `rollouts` of a run, `seeds`, test `problems`; more for `prepare`.
        dry_size (`dict`): The same for a dry run.
        model (`Callable[[dict], str]`): The name of a size's start model.
        prepare (`Callable[[Stage, dict, Path], None]`): Makes the start model of a size, in that folder.
        runner (`type[Runner]`): Does the runs.
    """

    name: str
    variants: dict[str, dict]
    learning_rate: float
    size: dict
    dry_size: dict
    model: Callable[[dict], str]
    prepare: Callable[[Stage, dict, Path], None]
    runner: type[Runner]

    def run(self, stage: Stage) -> None:
        size = self.dry_size if stage.dry else self.size
        workers = max(1, min(4, len(os.sched_getaffinity(0)) // 4)) if torch.cuda.is_available() else 1
        stage.settings = {**size, "variants": self.variants, "learning_rate": self.learning_rate}
        model, rows = stage.work / "models" / self.model(size), self._rows(stage.work)
        if not (stage.go_on() and (model / "config.json").is_file()):
            rows.unlink(missing_ok=True)  # rows of another start model
            stage.results = {}
            self.prepare(stage, size, model)
            stage.save()
        if "rollouts" not in stage.results:
            stage.results["rollouts"] = self._choose_rollouts(stage, size, workers)
        stage.save()
        module = f"scripts.gpu.stages.{self.name}"
        command = [sys.executable, "-m", module, str(stage.path), str(stage.work), str(stage.deadline)]
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
        stage.left_out += [f"{run.variant}, seed {run.seed}" for run in self._runs(size) if run.key not in done]
        failed = [process.returncode for process in processes if process.returncode not in (0, -signal.SIGTERM)]
        if failed:
            raise RuntimeError(f"{len(failed)} of {len(processes)} processes failed; what they said is above")

    def work(self, path: str, folder: str, deadline: str) -> None:
        """One process: do runs that no other has taken, while one is expected to end in time."""
        torch.set_num_threads(1)
        told = read(Path(path))
        assert told is not None
        stage = Stage(self.name, Path(path).parent, Path(folder), float(deadline))
        size, rows = told["settings"], self._rows(stage.work)
        ours = self._runner(stage, size, told["results"]["rollouts"])
        for run in self._runs(size):
            with claimed(run, stage.work / f"{self.name}_locks") as mine:
                found = read_rows(rows)
                if not mine or run.key in set(map(run_key, found)):
                    continue
                if 1.1 * max((row["seconds"] for row in found), default=0.0) > stage.left():
                    return
                row = ours(run)
                append_row(rows, row)
                before, after = (accuracy(row[f"solved_{when}"]) for when in ("before", "after"))
                print(run.variant, run.seed, f"{before:.3f} -> {after:.3f}", f"{row['seconds']:.0f} s", flush=True)

    def _rows(self, work: Path) -> Path:
        return work / f"{self.name}_rows.jsonl"

    def _runs(self, size: dict) -> list[Run]:
        rates = {(size["task"], variant): self.learning_rate for variant in self.variants}
        return study_runs(rates, range(size["seeds"]))

    def _runner(self, stage: Stage, size: dict, rollouts: int) -> Runner:
        torch.set_float32_matmul_precision("high")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        study = Study(self.name, self.variants, {"study": rollouts, "tune": rollouts}, samples=2, sections=())
        return self.runner(study, None, size["problems"], device, stage.work / "models")

    def _choose_rollouts(self, stage: Stage, size: dict, workers: int) -> int:
        """How many rollout batches each run can have in the time that is left, estimated from a trial of two."""
        if stage.dry:
            return size["rollouts"]
        trial = self._runner(stage, size, 2)
        trainer = trial.train(Run("tune", size["task"], "delta", self.learning_rate, 0))
        seconds = trainer.state.log_history[-1]["train_runtime"] / 2
        stage.results["trial_seconds"] = seconds
        rounds = -(-len(self._runs(size)) // workers)
        fit = (stage.left() - START) / rounds / (CROWDED * seconds) - 8  # 8 for the test problems
        return max(5, min(size["rollouts"], int(fit)))


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
