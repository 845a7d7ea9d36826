"""Runs that are interrupted and resumed through the command line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from delta_trl.cli import main
from delta_trl.data.records import recorded_files
from delta_trl.files import last_whole_checkpoint

from ..corpus import tiny
from . import killer


def make_recipe(folder: Path, name: str) -> str:
    """Six optimiser steps that save after every one, dropout on: its randomness must be restored, too."""
    options = {"reward_funcs": ["tests.commands.killer.reward"], "max_completion_length": 6, "max_steps": 6}
    options |= {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 3}
    return tiny.recipe(folder, name, **options, learning_rate=1e-3, log_token_credit=2)


@pytest.mark.processes
def test_an_interrupted_run_resumes_as_if_nothing_had_happened(tmp_path, monkeypatch, capsys):
    """Interrupted while it generates, killed in the middle of writing a checkpoint, and gone on with each time: same
    losses and weights."""
    torch.manual_seed(0)
    tiny.save(tmp_path / "model", attention_dropout=0.1)
    assert main(["train", "--config", make_recipe(tmp_path, "whole")]) == 0

    resume = ["train", "--config", make_recipe(tmp_path, "killed"), "--resume_from_checkpoint", "true"]
    kill = {"KILL": str(int(signal.SIGINT)), "KILL_IN": "rollout", "KILL_STEP": "1"}
    with monkeypatch.context() as interrupted:
        for name, value in kill.items():
            interrupted.setattr(killer, name, value)
        assert main(resume) == 130
    assert "Traceback" not in "".join(capsys.readouterr())
    assert last_whole_checkpoint(tmp_path / "killed").name == "checkpoint-1"

    kill = {"KILL": str(int(signal.SIGKILL)), "KILL_IN": "save", "KILL_STEP": "4", "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "scripts/train.py", *resume[1:]]
    killed = subprocess.run(command, env={**os.environ, **kill}, timeout=200)
    assert killed.returncode == -signal.SIGKILL
    assert last_whole_checkpoint(tmp_path / "killed").name == "checkpoint-3"
    assert (tmp_path / "killed" / "checkpoint-4").is_dir()
    assert main(resume) == 0

    def history(name):
        state = json.loads((tmp_path / name / "checkpoint-6" / "trainer_state.json").read_text())
        keys = ("step", "loss", "reward", "grad_norm", "credit/coefficient_std")
        return [{key: entry[key] for key in keys} for entry in state["log_history"] if "loss" in entry]

    assert history("killed") == history("whole")
    ours, expected = (recorded_files(tmp_path / run) for run in ("killed", "whole"))
    assert list(ours) == list(expected) == [0, 2, 4]
    assert all(pq.read_table(ours[step]).equals(pq.read_table(expected[step])) for step in expected)
    ours, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert all(torch.equal(ours[key], expected[key]) for key in expected)
