"""The quickstart in a shortened form, and the data and tokenizer that it ships."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "recipes" / "quickstart"


def problems(name: str) -> list[dict]:
    return [json.loads(line) for line in (QUICKSTART / name).read_text().splitlines()]


@pytest.mark.processes
def test_a_shortened_run_compares_and_reports(tmp_path):
    few = tmp_path / "few.jsonl"
    lines = (QUICKSTART / "test.jsonl").read_text().splitlines()
    few.write_text("\n".join(lines[:64]))
    folder = tmp_path / "quickstart"
    options = f"--max_steps 4 --eval_steps 4 --per_device_train_batch_size 16 --eval_dataset_name {few}"
    command = f"{sys.executable} scripts/quickstart.py {options} --arms none delta --output_dir {folder}"

    result = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True)

    assert result.returncode == 0, result.stderr
    said = result.stdout.splitlines()
    assert len(said) < 40
    assert said[-4].startswith("The model solved ")
    assert said[-1].startswith(f"Open {folder / 'compare.html'} ")

    compared = json.loads((folder / "compare.json").read_text())
    reached = compared["reached"]
    assert list(reached) == ["none", "delta"]
    # The shipped model solves about a quarter of the problems; four optimiser steps change it little, 0 or 1 would
    # mean a defect in sampling or in the reward.
    for found in reached.values():
        assert 0.05 < found["eval_reward"][0] < 0.9

    run = folder / "seed-0" / "delta"
    assert (run / "report.html").is_file()
    state = json.loads((run / "trainer_state.json").read_text())
    # the recipe is one where TRL scores old log-probs itself
    assert not any(entry.get("credit/extra_forward_passes") for entry in state["log_history"])


def test_solutions_are_right_and_no_test_problem_is_a_training_problem():
    seen = []
    for problem in problems("train.jsonl") + problems("test.jsonl"):
        question = problem["prompt"].rstrip("=")
        a, b = map(int, question.split("+"))
        assert problem["solution"] == str(a + b)
        summands = {a, b}
        seen.append(frozenset(summands))
    assert len(set(seen)) == len(seen)
