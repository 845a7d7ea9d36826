"""Train a tiny model on CPU with several rules of token credit and compare the runs; `make quickstart` runs this.

1. Accuracy before: the shipped model, sampled at temperature 1, on problems that neither warm-up nor training shows.
2. Training with each rule: `delta-trl train --config recipes/quickstart/addition.yaml`, as one would type it.
3. Accuracy after, a table on screen and the same in outputs/quickstart/summary.json.
4. A report of each run, outputs/quickstart/RULE/report.html, as `delta-trl inspect` writes it.

    python scripts/quickstart.py --seed 1 --token_credit none delta my_module.MyRule --output-dir outputs/mine

Other options are those of `delta-trl train`, and hold for every run.
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

from delta_trl.arguments.errors import UsageError
from delta_trl.credit import make_rule
from delta_trl.evaluation.sampling import describe
from delta_trl.files import write_json
from delta_trl.report import write_report
from delta_trl.rewards import math_reward


ROOT = Path(__file__).resolve().parents[1]  # the recipe's paths are relative to it
RECIPE = "recipes/quickstart/addition.yaml"
MODEL = ROOT / "recipes/quickstart/model"
TEST_PROBLEMS = ROOT / "recipes/quickstart/test.jsonl"
MAX_NEW_TOKENS = 56  # as max_completion_length in the recipe
RULES = ["none", "delta", "side_weights"]
SAMPLING = {"temperature": 1.0, "top_p": 1.0}  # as in training; `delta-trl eval` has top-p 0.7


def main() -> None:
    args, train_options = parse_args()
    problems = [json.loads(line) for line in TEST_PROBLEMS.read_text().splitlines()]
    if not 1 <= args.eval_problems <= len(problems):
        sys.exit(f"--eval-problems is {args.eval_problems}, but the test set has {len(problems)} problems")
    problems = problems[: args.eval_problems]
    if any(option.split("=")[0] == "--output_dir" for option in train_options):
        sys.exit("--output_dir is what training gets; say --output-dir to this script")
    rules = read_rules(args.token_credit)
    folder = args.output_dir.resolve()
    summary_path = folder / "summary.json"
    own = json.loads(summary_path.read_text()).get("folders", []) if summary_path.is_file() else []
    for rule in rules:
        if (folder / rule).exists() and rule not in own:
            sys.exit(f"{folder / rule} is not a run of this script. Give another --output-dir")
    if args.max_steps is not None:
        train_options += ["--max_steps", str(args.max_steps)]
    start = time.perf_counter()
    disable_progress_bar()
    # One thread, here and in training: on busy cores, threads that wait for each other make a model this small many
    # times slower.
    torch.set_num_threads(1)

    summary = {
        "accuracy_before": sampled_accuracy(MODEL, problems, args.seed),
        "sampling": SAMPLING,
        "folders": sorted({*own, *rules}),  # which may be overwritten
        "runs": {},
    }
    measured = f"{len(problems)} unseen problems, {describe(**SAMPLING)}"
    print(f"accuracy before: {summary['accuracy_before']:.3f} ({measured})", flush=True)
    write_json(summary, summary_path)
    for rule, credits_rollouts in rules.items():
        options = ["--token_credit", rule, "--overwrite_output_dir", "true", *train_options]
        train(folder / rule, args.seed, options if credits_rollouts else [*options, "--log_token_credit", "0"])
        summary["runs"][rule] = outcome(folder / rule, problems, args.seed)
        write_json(summary, summary_path)

    print(f"\n{table(summary)}\n\naccuracy on {measured}; everything took {time.perf_counter() - start:.0f} s.")
    print(f"summary  {summary_path}")
    for run in summary["runs"].values():
        print(f"report   {run['report']}")
    print("\nOpen a report in a browser: how training went, and which tokens got credit.")


def read_rules(names: list[str]) -> dict[str, bool]:
    """The rules, and whether each credits rollout batches, so that it can be recorded."""
    sys.path.insert(0, str(ROOT))  # as in training, for rules of one's own
    try:
        return {name: make_rule(name).credits_rollouts for name in names}
    except ValueError as error:
        sys.exit(str(error))


def train(run_dir: Path, seed: int, options: list[str]) -> None:
    command = [sys.executable, "-m", "delta_trl.cli", "train", "--config", RECIPE]
    command += ["--output_dir", str(run_dir), "--seed", str(seed), *options]
    print("\n$", " ".join(command), flush=True)
    exit_code = subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode
    if exit_code != 0:
        sys.exit(f"training failed with exit code {exit_code}; its error is above")


def outcome(run_dir: Path, problems: list[dict], seed: int) -> dict:
    accuracy = sampled_accuracy(run_dir, problems, seed)
    history = json.loads((run_dir / "trainer_state.json").read_text())["log_history"]
    rewards = [entry["reward"] for entry in history if "reward" in entry]
    try:
        report = str(write_report([run_dir], run_dir / "report.html"))
    except UsageError as error:
        report = f"not written: {error}"
    return {
        "accuracy": accuracy,
        "mean_reward": sum(rewards) / len(rewards),  # over all of training: how early it learned
        "train_seconds": sum_logged(history, "train_runtime"),
        # logged once per rollout batch
        "credit_seconds": sum_logged(history, "credit/seconds"),
        "extra_forward_passes": round(sum_logged(history, "credit/extra_forward_passes")),
        "report": report,
    }


def table(summary: dict) -> str:
    lines = [f"{'token_credit':20} {'accuracy':>8} {'reward in training':>19} {'seconds':>8} {'of them credit':>15}"]
    lines.append(f"{'(before)':20} {summary['accuracy_before']:8.3f}")
    for rule, run in summary["runs"].items():
        name = "none (DAPO)" if rule == "none" else rule
        numbers = f"{run['accuracy']:8.3f} {run['mean_reward']:19.3f} {run['train_seconds']:8.0f}"
        lines.append(f"{name:20} {numbers} {run['credit_seconds']:15.2f}")
    return "\n".join(lines)


def parse_args() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of training and of the evaluations' sampling")
    parser.add_argument("--token_credit", nargs="+", default=RULES, metavar="RULE", help="one run each")
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
