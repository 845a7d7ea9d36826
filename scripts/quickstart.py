"""Train a tiny model on CPU with several rules of token credit, all at once; `make quickstart` runs this.

1. A run for each rule, as one would type it: `delta-trl train --config recipes/quickstart/addition.yaml`. It measures
   accuracy before, halfway and after, on problems that neither warm-up nor training shows.
2. The runs beside each other while they train, then a table; the same in outputs/quickstart/summary.json.
3. A report of each run, outputs/quickstart/RULE/report.html, as `delta-trl inspect` writes it.

    python scripts/quickstart.py --seed 1 --token_credit none delta my_module.MyRule --output_dir outputs/mine

Other options are those of `delta-trl train`, and hold for every run. A run takes one core and 1 GB of memory.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from delta_trl.arguments.errors import UsageError
from delta_trl.credit import make_rule
from delta_trl.files import write_json
from delta_trl.report import write_report


ROOT = Path(__file__).resolve().parents[1]  # the recipe's paths are relative to it
RULES = ["none", "delta", "side_weights"]
TRAIN = "train --config recipes/quickstart/addition.yaml --num_completions_to_print 0"
# one completion of each test problem, sampled as in training
EVALUATE = "--eval_dataset_name recipes/quickstart/test.jsonl --eval_strategy steps --eval_steps 0.5"
EVALUATE += " --eval_on_start true --num_generations_eval 1 --per_device_eval_batch_size 256"
# what training prints of a rollout batch, and of an evaluation
ACCURACY = "eval_rewards/math_reward/mean"
LINE = re.compile(rf"'(reward|{ACCURACY})': '?([\d.]+)")


def main() -> None:
    args, options = parse_args()
    sys.path.insert(0, str(ROOT))  # as in training, for rules of one's own
    try:
        recorded = {rule: make_rule(rule).credits_rollouts for rule in args.token_credit}
    except ValueError as error:
        sys.exit(str(error))
    folder, start = args.output_dir.resolve(), time.perf_counter()
    summary_path = folder / "summary.json"
    own = json.loads(summary_path.read_text())["folders"] if summary_path.is_file() else []
    for rule in recorded:
        if (folder / rule).exists() and rule not in own:
            sys.exit(f"{folder / rule} is not a run of this script. Give another --output_dir")
    summary = {"folders": sorted({*own, *recorded}), "runs": {}}  # the folders may be written over
    write_json(summary, summary_path)

    command = f"{TRAIN} {EVALUATE} --seed {args.seed} --max_steps {args.max_steps}".split() + options
    print("$ delta-trl", *command, f"--token_credit RULE --output_dir {folder}/RULE")
    print(f"\nA run for each of {len(recorded)} rules, all at once. The first numbers take some seconds.\n")
    print(f"{'':17}", *(f"{rule:>14}" for rule in recorded), flush=True)
    runs = []
    for rule in recorded:
        shutil.rmtree(folder / rule, ignore_errors=True)
        own_options = ["--token_credit", rule, "--output_dir", str(folder / rule)]
        own_options += [] if recorded[rule] else ["--log_token_credit", "0"]
        log = folder / f"{rule}.log"
        runs.append((start_training([*command, *own_options], log), log))
    try:
        for cells in zip_longest(*(progress(*run) for run in runs), fillvalue=("", "")):
            print(f"{cells[0][0]:17}", *(f"{value:>14}" for _, value in cells), flush=True)
    finally:
        for run, _ in runs:
            run.terminate()

    print(f"\n{'token_credit':14} {'before':>8} {'halfway':>8} {'after':>8} {'seconds':>8} {'of them credit':>15}")
    for rule in recorded:
        summary["runs"][rule] = found = outcome(folder / rule)
        accuracies = f"{found['accuracy_before']:8.3f} {found['accuracy_halfway']:8.3f} {found['accuracy']:8.3f}"
        name = "none (DAPO)" if rule == "none" else rule
        print(f"{name:14} {accuracies} {found['train_seconds']:8.0f} {found['credit_seconds']:15.2f}", flush=True)
    write_json(summary, summary_path)
    seconds = time.perf_counter() - start
    print(f"accuracy on unseen problems, sampled as in training; everything took {seconds:.0f} s")
    print(f"\nsummary  {summary_path}", *(f"report   {run['report']}" for run in summary["runs"].values()), sep="\n")
    model, tools = folder / list(recorded)[-1], Path(sys.executable).parent
    print("\nNext: open a report in a browser, or")
    print(f"{tools}/delta-trl inspect {model} --step 0  # the completions before the first step")
    print(f"{tools}/python {Path(__file__).resolve()} --token_credit delta:token_gradient=lm_head  # another rule")


def start_training(options: list[str], log: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "delta_trl", *options]
    # One thread for each: on busy cores, threads that wait for each other make a model this small many times slower.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("w") as errors:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)


def progress(run: subprocess.Popen, log: Path) -> Iterator[tuple[str, str]]:
    """Of each line that a run prints about its training, its label and value. Ends this process if the run fails."""
    for line in run.stdout:
        if found := LINE.search(line):
            yield "accuracy" if found[1] == ACCURACY else "reward", found[2]
    if exit_code := run.wait():
        sys.exit(f"training failed with exit code {exit_code}:\n{log.read_text()[-3000:]}")


def outcome(run_dir: Path) -> dict:
    """What a run has reached, and what it took; writes its report."""
    history = json.loads((run_dir / "trainer_state.json").read_text())["log_history"]
    accuracies = [entry[ACCURACY] for entry in history if ACCURACY in entry]
    rewards = [entry["reward"] for entry in history if "reward" in entry]
    try:
        report = str(write_report(run_dir, run_dir / "report.html"))
    except UsageError as error:
        report = f"not written: {error}"
    return {
        "accuracy_before": accuracies[0],
        "accuracy_halfway": accuracies[len(accuracies) // 2],
        "accuracy": accuracies[-1],
        "mean_reward": sum(rewards) / len(rewards),  # over all of training: how early it learned
        "train_seconds": sum_logged(history, "train_runtime"),
        # logged once per rollout batch
        "credit_seconds": sum_logged(history, "credit/seconds"),
        "extra_forward_passes": round(sum_logged(history, "credit/extra_forward_passes")),
        "report": report,
    }


def sum_logged(history: list[dict], key: str) -> float:
    return sum(entry.get(key, 0.0) for entry in history)


def parse_args() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of training and of the evaluations' sampling")
    parser.add_argument("--token_credit", "--token-credit", nargs="+", default=RULES, help="one run each")
    parser.add_argument("--max_steps", "--max-steps", type=int, default=28, help="instead of the recipe's 80")
    parser.add_argument("--output_dir", "--output-dir", type=Path, default=ROOT / "outputs/quickstart")
    return parser.parse_known_args()


if __name__ == "__main__":
    main()
