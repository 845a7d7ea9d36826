"""Train a tiny model with DelTA on CPU and measure what it has learned; `make quickstart` runs this.

1. Accuracy before: the shipped model, sampled at temperature 1, on problems that neither warm-up nor training shows.
2. Training: `delta-trl train --config recipes/quickstart/addition.yaml`, as one would type it.
3. Accuracy after, a summary on screen and the same in outputs/quickstart/summary.json.
4. A report of the run, outputs/quickstart/run/report.html, as `delta-trl inspect` writes it.

    python scripts/quickstart.py --seed 1 --output-dir outputs/quickstart-seed1

Other options are those of `delta-trl train`: `--token_credit none --log_token_credit 0` trains with plain DAPO.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.utils.logging import disable_progress_bar

from delta_trl.errors import RecipeError
from delta_trl.evaluation.sampling import describe
from delta_trl.report import write_report
from delta_trl.rewards import math_reward


ROOT = Path(__file__).resolve().parents[1]  # the recipe's paths are relative to it
RECIPE = "recipes/quickstart/addition.yaml"
MODEL = ROOT / "recipes/quickstart/model"
TEST_PROBLEMS = ROOT / "recipes/quickstart/test.jsonl"
MAX_NEW_TOKENS = 56  # as max_completion_length in the recipe
SAMPLING = {"temperature": 1.0, "top_p": 1.0}  # as in training; `delta-trl eval` has top-p 0.7


def main() -> None:
    args, train_options = parse_args()
    problems = [json.loads(line) for line in TEST_PROBLEMS.read_text().splitlines()]
    if not 1 <= args.eval_problems <= len(problems):
        sys.exit(f"--eval-problems is {args.eval_problems}, but the test set has {len(problems)} problems")
    problems = problems[: args.eval_problems]
    run_dir, summary_path = args.output_dir.resolve() / "run", args.output_dir.resolve() / "summary.json"
    if any(option.split("=")[0] == "--output_dir" for option in train_options):
        sys.exit("--output_dir is what training gets; say --output-dir to this script")
    start = time.perf_counter()
    disable_progress_bar()
    # One thread, here and in training: on busy cores, threads that wait for each other make a model this small many
    # times slower.
    torch.set_num_threads(1)

    accuracy_before = sampled_accuracy(MODEL, problems, args.seed)
    measured = f"{len(problems)} unseen problems, {describe(**SAMPLING)}"
    print(f"accuracy before: {accuracy_before:.3f} ({measured})\n", flush=True)

    command = [sys.executable, "-m", "delta_trl.cli", "train", "--config", RECIPE]
    command += ["--output_dir", str(run_dir), "--seed", str(args.seed)]
    if summary_path.is_file():  # of this script's, also of one that was interrupted
        command += ["--overwrite_output_dir", "true"]
    elif not run_dir.exists():
        summary_path.parent.mkdir(parents=True, exist_ok=True)
        summary_path.write_text(json.dumps({"accuracy_before": accuracy_before}, indent=2) + "\n")
    if args.max_steps is not None:
        command += ["--max_steps", str(args.max_steps)]
    command += train_options
    print("$", " ".join(command), flush=True)
    exit_code = subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode
    if exit_code != 0:
        sys.exit(f"training failed with exit code {exit_code}; its error is above")

    accuracy_after = sampled_accuracy(run_dir, problems, args.seed)
    history = json.loads((run_dir / "trainer_state.json").read_text())["log_history"]
    summary = {
        "accuracy_before": accuracy_before,
        "accuracy_after": accuracy_after,
        "sampling": SAMPLING,
        "train_seconds": sum_logged(history, "train_runtime"),
        # logged once per rollout batch
        "coefficient_seconds": sum_logged(history, "credit/seconds"),
        "extra_forward_passes": round(sum_logged(history, "credit/extra_forward_passes")),
    }
    summary_path.write_text(json.dumps(summary, indent=2) + "\n")
    try:
        report = write_report([run_dir], run_dir / "report.html")
    except RecipeError as error:
        report = f"not written: {error}"

    print(f"""
accuracy before      {accuracy_before:.3f}
accuracy after       {accuracy_after:.3f}
measured on          {measured}
training             {summary["train_seconds"]:.0f} s, of which token credit {summary["coefficient_seconds"]:.2f} s, \
{summary["extra_forward_passes"]} extra forward passes
everything           {time.perf_counter() - start:.0f} s

model                {run_dir}
logs                 {run_dir / "trainer_state.json"}
completions          {run_dir / "completions"}
summary              {summary_path}
report               {report}

Open the report in a browser: how training went, and which tokens got credit.""")


def parse_args() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of training and of the evaluations' sampling")
    parser.add_argument("--max-steps", type=int, help="optimiser steps, instead of the recipe's")
    parser.add_argument("--output-dir", type=Path, default=ROOT / "outputs/quickstart")
    parser.add_argument("--eval-problems", type=int, default=512, help="how many of the test problems to use")
    return parser.parse_known_args()


def sampled_accuracy(model_dir: Path, problems: list[dict], seed: int) -> float:
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(model_dir)
    except (OSError, ValueError) as error:
        sys.exit(f"no model can be loaded from {model_dir}: {error}")
    set_seed(seed)
    prompts = tokenizer([problem["prompt"] for problem in problems], return_tensors="pt", padding=True)
    with torch.no_grad():
        sequences = model.generate(**prompts, max_new_tokens=MAX_NEW_TOKENS, do_sample=True, top_k=0, **SAMPLING)
    completions = tokenizer.batch_decode(sequences[:, prompts.input_ids.shape[1] :], skip_special_tokens=True)
    rewards = math_reward(completions, solution=[problem["solution"] for problem in problems])
    return sum(rewards) / len(rewards)


def sum_logged(history: list[dict], key: str) -> float:
    return sum(entry.get(key, 0.0) for entry in history)


if __name__ == "__main__":
    main()
