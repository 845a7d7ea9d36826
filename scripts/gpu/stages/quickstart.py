"""The quickstart with its training on the GPU: does the same recipe learn there, and how long does it take?"""

import json
import subprocess
import sys
import time

import torch

from ...benchmarks.timing import spread
from .stage import ROOT, Stage


SEEDS = {False: 3, True: 1}


def run(stage: Stage) -> None:
    options = ["--token_credit", "delta"]
    if torch.cuda.is_available():
        options += ["--use_cpu", "false"]
    if stage.dry:
        options += ["--max_steps", "4"]
    stage.settings = {"options": options, "seeds": SEEDS[stage.dry]}
    stage.go_on()
    runs = stage.results.setdefault("runs", [])
    for seed in range(len(runs), stage.settings["seeds"]):
        longest = max((run["seconds"] for run in runs), default=0.0)
        if 1.1 * longest > stage.left():
            stage.left_out.append(f"seed {seed}")
            continue
        folder, start = stage.work / f"quickstart-{seed}", time.perf_counter()
        command = [sys.executable, "scripts/quickstart.py", "--seed", str(seed), "--output_dir", str(folder), *options]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=max(1, stage.left() - 5))
        except subprocess.TimeoutExpired:
            stage.left_out.append(f"seed {seed}: did not end in time")
            break
        if done.returncode:
            raise RuntimeError(f"the quickstart ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")
        summary = json.loads((folder / "summary.json").read_text())
        known = {"seed": seed, "seconds": time.perf_counter() - start}
        runs.append({name: value for name, value in summary["runs"]["delta"].items() if name != "report"} | known)
        for name in ("accuracy_before", "accuracy", "train_seconds", "credit_seconds"):
            stage.results[name] = spread([run[name] for run in runs])
        stage.save()
