"""The quickstart in a shortened form, and the data and tokenizer that it ships."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import quickstart


ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "recipes" / "quickstart"


def problems(name: str) -> list[dict]:
    return [json.loads(line) for line in (QUICKSTART / name).read_text().splitlines()]


@pytest.mark.processes
def test_shortened_run_measures_before_and_after(tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("".join(f"{json.dumps(problem)}\n" for problem in problems("test.jsonl")[:64]))
    options = ["--max_steps", 4, "--per_device_train_batch_size", 16, "--eval_dataset_name", few]
    options += ["--token_credit", "none", "delta", "--output_dir", tmp_path]
    command = [sys.executable, "scripts/quickstart.py", *map(str, options)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) < 30
    runs = json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert list(runs) == ["none", "delta"]
    for rule, run in runs.items():
        folder = tmp_path / rule
        # The shipped model solves 0.30 of the problems; four optimiser steps change it little, 0 or 1 would mean a
        # defect in sampling or in the reward.
        assert 0.05 < run["accuracy_before"] == runs["none"]["accuracy_before"] < 0.6
        assert 0.05 < run["accuracy"] < 0.9
        assert run["extra_forward_passes"] == 0  # the recipe is one where TRL scores old log-probs itself
        assert (run["credit_seconds"] > 0) == (folder / "token_credit").exists() == (rule != "none")
        assert run["train_seconds"] > run["credit_seconds"]
        assert f"report   {folder / 'report.html'}" in lines


def test_a_training_that_fails_is_shown(tmp_path):
    log = tmp_path / "run.log"
    with pytest.raises(SystemExit, match="unknown command 'nothing'"):
        list(quickstart.progress(quickstart.start_training(["nothing"], log), log))


def test_somebody_elses_run_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "none").mkdir()
    monkeypatch.setattr(sys, "argv", ["quickstart.py", "--output_dir", str(tmp_path)])
    with pytest.raises(SystemExit, match="none is not a run of this script"):
        quickstart.main()
    assert [path.name for path in tmp_path.iterdir()] == ["none"]


def test_solutions_are_right_and_no_test_problem_is_a_training_problem():
    summands = []
    for problem in problems("train.jsonl") + problems("test.jsonl"):
        a, b = map(int, problem["prompt"].rstrip("=").split("+"))
        assert problem["solution"] == str(a + b)
        summands.append(frozenset((a, b)))
    assert len(set(summands)) == len(summands)
