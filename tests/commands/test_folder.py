"""The folder of a run is not written over by another."""

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from delta_trl.arguments.errors import UsageError
from delta_trl.cli import main
from delta_trl.commands.folder import refuse_another_run, remove_run

from ..distributed.launch import ROOT
from ..locks import locked_elsewhere
from .test_mistakes import RECIPE, furnish


OPTIONS = {"max_steps": 2, "save_steps": 1, "logging_steps": 1, "log_token_credit": 1, "log_completions": True}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a finished run in `run`."""
    folder = tmp_path_factory.mktemp("trained")
    furnish(folder)
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**RECIPE, **OPTIONS}))
    with contextlib.chdir(folder):
        assert main(["train", "--config", "recipe.yaml"]) == 0
    return folder


@pytest.fixture
def train(trained, tmp_path, monkeypatch, capsys):
    """`delta-trl train` in a copy of it: exit code and all that it printed."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def train(*flags) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["train", "--config", "recipe.yaml", *flags])
        return code, "".join(capsys.readouterr())

    return train


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_run_stays_what_it_is(train, tmp_path):
    folder = tmp_path / "run"
    mine = ["notes.txt", "completions/essay.txt", "checkpoint-notes/n", "other.safetensors", "report.html"]
    for name in mine:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    before = contents(folder)
    assert {"checkpoint-2/trainer_state.json", "model.safetensors", "token_credit/token_credit_00000.parquet"} <= set(
        before
    )

    code, printed = train("--learning_rate", "0.1")
    assert code == 2
    for option in ("output_dir='run'", "--resume_from_checkpoint", "--output_dir", "--overwrite_output_dir"):
        assert option in printed
    assert contents(folder) == before

    code, printed = train("--resume_from_checkpoint", "true", "--max_steps", "3")
    assert code == 0
    assert "Going on from run/checkpoint-2" in printed
    assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == 3

    assert train("--overwrite_output_dir", "true", "--max_steps", "1")[0] == 0
    assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == 1
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-notes"]
    assert len(list(folder.glob("completions/*.parquet"))) == 1
    assert all((folder / name).read_text() == "mine" for name in mine)


def test_a_finished_run_is_gone_on_with_as_it_is_or_not_at_all(train, tmp_path, caplog):
    before = contents(tmp_path / "run")
    (tmp_path / "others.jsonl").write_text((tmp_path / "data.jsonl").read_text())
    for flags, message in (
        (("--dataset_name", "others.jsonl"), "dataset was 'data.jsonl' and is 'others.jsonl'"),
        (("--use_peft", "true"), "recipe.use_peft was False and is True"),
        (("--prompt_template", "add {prompt}"), "recipe.prompt_template was None and is 'add {prompt}'"),
    ):
        code, printed = train("--resume_from_checkpoint", "true", *flags)
        assert code == 2
        assert "resume_from_checkpoint='run/checkpoint-2': its run has other settings: " in printed
        assert message in printed
        assert contents(tmp_path / "run") == before

    code, printed = train("--resume_from_checkpoint", "true")
    assert code == 0
    assert "3/2" not in printed
    assert "run/checkpoint-2 has all 2 optimiser steps" in caplog.text
    after = contents(tmp_path / "run")
    assert {name for name in after if name.endswith(".safetensors")} == {
        name for name in before if before[name] == after[name] and name.endswith(".safetensors")
    }


def test_of_two_runs_at_once_one_is_refused(train, tmp_path):
    with locked_elsewhere(tmp_path / "other"):
        code, printed = train("--output_dir", "other")
    assert code == 2
    assert "--output_dir" in printed
    assert [path.name for path in (tmp_path / "other").iterdir() if path.is_file()] == [".lock"]


def test_what_is_trained_from_is_never_removed(train, tmp_path):
    for source in ("run", "run/checkpoint-2"):
        flags = ["--overwrite_output_dir", "true", "--model_name_or_path", source]
        code, printed = train(*flags)
        assert code == 2
        assert f"output_dir='run' holds '{source}', which is trained from" in printed
    assert (tmp_path / "run" / "checkpoint-2" / "model.safetensors").is_file()
    # nor anything, if the call then fails for another reason
    code, _ = train("--overwrite_output_dir", "true", "--dataset_name", "prompts.jsonl")
    assert code == 2
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_a_restart_after_a_crash_does_not_begin_anew(tmp_path, monkeypatch):
    checkpoint = tmp_path / "checkpoint-8"
    checkpoint.mkdir()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    remove_run(tmp_path)
    assert checkpoint.is_dir()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    remove_run(tmp_path)
    assert not checkpoint.exists()


def test_what_counts_as_going_on(tmp_path):
    refuse_another_run(tmp_path / "none")
    refuse_another_run(tmp_path)
    (tmp_path / "completions").mkdir()  # TRL makes it at once
    refuse_another_run(tmp_path)
    (tmp_path / "completions" / "completions_00005.parquet").touch()
    with pytest.raises(UsageError, match=r"reached step 5, which would be written over: choose another"):
        refuse_another_run(tmp_path)
    refuse_another_run(tmp_path, resume=True)  # it was stopped before its first checkpoint
    (tmp_path / "trainer_state.json").touch()
    with pytest.raises(UsageError, match="holds a run"):  # it has ended, and there is nothing to go on from
        refuse_another_run(tmp_path, resume="true")
    (tmp_path / "checkpoint-8").mkdir()
    (tmp_path / "checkpoint-8" / "trainer_state.json").write_text("{}")
    refuse_another_run(tmp_path, resume="true")
    refuse_another_run(tmp_path, resume=str(tmp_path / "checkpoint-8"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint-8").symlink_to(tmp_path / "checkpoint-8")
    refuse_another_run(tmp_path / "run", resume=str(tmp_path / "run" / "checkpoint-8"))
    with pytest.raises(UsageError, match=r"reached step 8, .* go on with it"):
        refuse_another_run(tmp_path, resume="elsewhere/checkpoint-8")
    (tmp_path / "checkpoint-10").mkdir()
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text("{}")
    refuse_another_run(tmp_path, resume=str(tmp_path / "checkpoint-10"))
    refuse_another_run(tmp_path / "elsewhere", resume=str(tmp_path / "checkpoint-8"))
    with pytest.raises(UsageError, match=r"also holds later checkpoints \(10\).*another folder"):
        refuse_another_run(tmp_path, resume=str(tmp_path / "checkpoint-8"))
    with pytest.raises(UsageError, match="contradict"):
        refuse_another_run(tmp_path, resume=True, overwrite=True)


@pytest.mark.processes
def test_a_launch_that_starts_one_process_of_two(tmp_path):
    """accelerate does so on CPUs, without a word."""
    furnish(tmp_path)
    launch = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--cpu", "--num_processes", "2"]
    command = [*launch, str(ROOT / "scripts/train.py"), "--config", "recipe.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "accelerate launch was asked for 2 processes and started one" in done.stdout + done.stderr
