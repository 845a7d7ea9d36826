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
from delta_trl.report.token_log.records import recorded_files
from delta_trl.trainer.checkpoints import last_complete_checkpoint

from ..corpus import tiny


def make_recipe(folder: Path, name: str) -> str:
    """Six optimiser steps that save after every one, dropout on: its randomness must be restored, too."""
    options = {"reward_funcs": ["tests.commands.killer.reward"], "max_completion_length": 6, "max_steps": 6}
    options |= {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 3}
    return tiny.recipe(folder, name, **options, learning_rate=1e-3, log_token_credit=2)


def resume(recipe: str, **kill) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "scripts/train.py", "--config", recipe, "--resume_from_checkpoint", "true"],
        env={**os.environ, "PYTHONPATH": os.getcwd(), **kill},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        # the test runner's own background jobs may ignore Ctrl-C, which children inherit
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.processes
def test_an_interrupted_run_resumes_as_if_nothing_had_happened(tmp_path):
    """Interrupted while it generates, killed in the middle of writing a checkpoint, and gone on with each time: same
    losses and weights."""
    torch.manual_seed(0)
    tiny.save(tmp_path / "model", attention_dropout=0.1)
    assert main(["train", "--config", make_recipe(tmp_path, "whole")]) == 0

    recipe = make_recipe(tmp_path, "killed")
    for how, where, step, complete in (
        (signal.SIGINT, "rollout", 1, 1),
        (signal.SIGKILL, "save", 4, 3),
    ):
        killed = resume(recipe, KILL=str(int(how)), KILL_IN=where, KILL_STEP=str(step))
        if how == signal.SIGINT:
            assert killed.returncode == 130, killed.stdout
            assert "Traceback" not in killed.stdout
        else:
            assert killed.returncode == -how, killed.stdout
        assert last_complete_checkpoint(tmp_path / "killed").name == f"checkpoint-{complete}"
        assert (tmp_path / "killed" / f"checkpoint-{step}").is_dir()
    resumed = resume(recipe)
    assert resumed.returncode == 0, resumed.stdout

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
