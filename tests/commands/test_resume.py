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
    return tiny.recipe(
        folder,
        name,
        reward_funcs=["tests.commands.killer.reward"],
        max_completion_length=6,
        max_steps=6,
        learning_rate=1e-3,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=3,
        log_token_credit=2,
    )


def history(run: Path) -> list[dict]:
    """What is logged of each step, but for durations."""
    state = json.loads((run / "checkpoint-6" / "trainer_state.json").read_text())
    steps = [entry for entry in state["log_history"] if "loss" in entry]
    keys = ("step", "loss", "reward", "grad_norm", "credit/coefficient_std")
    return [{key: entry[key] for key in keys} for entry in steps]


@pytest.mark.processes
def test_an_interrupted_run_resumes_as_if_nothing_had_happened(tmp_path, monkeypatch, capsys):
    """Interrupted while it generates, killed in the middle of writing a checkpoint, and gone on with each time: same
    losses and weights."""
    torch.manual_seed(0)
    tiny.save(tmp_path / "model", attention_dropout=0.1)
    assert main(["train", "--config", make_recipe(tmp_path, "whole")]) == 0

    resume = ["train", "--config", make_recipe(tmp_path, "killed"), "--resume_from_checkpoint", "true"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with monkeypatch.context() as interrupted:
        interrupted.setattr(killer, "KILL", f"{signal.SIGINT:d}")
        interrupted.setattr(killer, "KILL_IN", "rollout")
        interrupted.setattr(killer, "KILL_STEP", "1")
        assert main(resume) == 130
    assert "Traceback" not in "".join(capsys.readouterr())
    assert last_whole_checkpoint(killed).name == "checkpoint-1"

    environment = {
        **os.environ,
        "KILL": f"{signal.SIGKILL:d}",
        "KILL_IN": "save",
        "KILL_STEP": "4",
        "PYTHONPATH": os.getcwd(),
    }
    command = [sys.executable, "scripts/train.py", *resume[1:]]
    process = subprocess.run(command, env=environment, timeout=200)
    assert process.returncode == -signal.SIGKILL
    assert last_whole_checkpoint(killed).name == "checkpoint-3"
    assert (killed / "checkpoint-4").is_dir()
    assert main(resume) == 0

    assert history(killed) == history(whole)
    records, expected = recorded_files(killed), recorded_files(whole)
    assert list(records) == [0, 2, 4]
    assert list(expected) == [0, 2, 4]
    for step, file in expected.items():
        assert pq.read_table(records[step]).equals(pq.read_table(file))
    weights = load_file(killed / "model.safetensors")
    for name, expected in load_file(whole / "model.safetensors").items():
        assert torch.equal(weights[name], expected), name
