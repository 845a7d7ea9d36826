"""The quickstart in a shortened form, and the data and tokenizer that it ships."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from scripts import quickstart


ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "recipes" / "quickstart"


def problems(name: str) -> list[dict]:
    return [json.loads(line) for line in (QUICKSTART / name).read_text().splitlines()]


def run_quickstart(*args) -> subprocess.CompletedProcess:
    command = [sys.executable, "scripts/quickstart.py", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.processes
def test_shortened_run_measures_before_and_after(tmp_path):
    result = run_quickstart("--max-steps", 4, "--eval-problems", 64, "--output-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    # The shipped model solves 0.30 of the problems; four optimiser steps change it little, 0 or 1 would mean a defect
    # in sampling or in the reward.
    assert 0.05 < summary["accuracy_before"] < 0.6
    assert summary["sampling"] == {"temperature": 1.0, "top_p": 1.0}
    assert "accuracy on 64 unseen problems, sampled at temperature 1, top-p 1" in result.stdout
    assert str(tmp_path / "summary.json") in result.stdout
    assert len(result.stdout.splitlines()) < 90
    assert list(summary["runs"]) == ["none", "delta", "side_weights"]
    rewards = [run["mean_reward"] for run in summary["runs"].values()]
    assert rewards == rewards[:1] * 3  # one rollout batch, sampled alike by the same model
    for rule, run in summary["runs"].items():
        folder = tmp_path / rule
        assert 0.05 < run["accuracy"] < 0.9
        assert f"\n{'none (DAPO)' if rule == 'none' else rule:20} {run['accuracy']:8.3f}" in result.stdout
        assert run["extra_forward_passes"] == 0  # the recipe is one where TRL scores old log-probs itself
        assert (run["credit_seconds"] > 0) == (folder / "token_credit").exists() == (rule != "none")
        assert run["train_seconds"] > run["credit_seconds"]
        assert (folder / "model.safetensors").is_file()
        assert list((folder / "completions").glob("*.parquet"))
        assert run["report"] == str(folder / "report.html")
        assert run["report"] in result.stdout
        assert ("Token clouds" in (folder / "report.html").read_text()) == (rule != "none")

    short = ("--max-steps", 4, "--eval-problems", 64, "--output-dir", tmp_path)
    again = run_quickstart(*short, "--token_credit", "fipo", "delta")  # fipo has nothing to record
    assert again.returncode == 0, again.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["folders"] == ["delta", "fipo", "none", "side_weights"]
    assert list(summary["runs"]) == ["fipo", "delta"]


def test_somebody_elses_run_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "delta").mkdir()
    monkeypatch.setattr(sys, "argv", ["quickstart.py", "--output-dir", str(tmp_path)])
    for _ in range(2):
        with pytest.raises(SystemExit, match="delta is not a run of this script"):
            quickstart.main()
    assert [path.name for path in tmp_path.iterdir()] == ["delta"]


def test_rules_are_known_before_any_training(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["quickstart.py", "--token_credit", "none", "detla", "--output-dir", str(tmp_path)]
    )
    with pytest.raises(SystemExit, match="did you mean 'delta'"):
        quickstart.main()


def test_the_runs_folder_is_not_an_option(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["quickstart.py", f"--output_dir={tmp_path}"])
    with pytest.raises(SystemExit, match="say --output-dir to this script"):
        quickstart.main()


@pytest.mark.parametrize("count", [0, 513])
def test_number_of_problems_is_checked(tmp_path, monkeypatch, count):
    monkeypatch.setattr(sys, "argv", ["quickstart.py", "--eval-problems", str(count), "--output-dir", str(tmp_path)])
    with pytest.raises(SystemExit, match=f"--eval-problems is {count}, but the test set has 512 problems"):
        quickstart.main()


def test_no_test_problem_is_a_training_problem():
    def unordered(name):
        return [frozenset(problem["prompt"].rstrip("=").split("+")) for problem in problems(name)]

    train, test = unordered("train.jsonl"), unordered("test.jsonl")
    assert len(set(train) | set(test)) == len(train) + len(test)


@pytest.mark.parametrize("name", ["train.jsonl", "test.jsonl"])
def test_solutions_are_right(name):
    for problem in problems(name):
        a, b = problem["prompt"].rstrip("=").split("+")
        assert problem["solution"] == str(int(a) + int(b))


def test_decoding_restores_the_text():
    tokenizer = AutoTokenizer.from_pretrained(QUICKSTART / "model")
    text = "ones 5+7=12 write 2 carry 1\ntens 4+6+1=11 write 1 carry 1\nhundreds 3+5+1=9 write 9 carry 0\n\\boxed{912}"
    ids = tokenizer(text + tokenizer.eos_token).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
