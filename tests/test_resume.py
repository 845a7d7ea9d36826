"""Checkpoints: which one is complete, and that resuming from it continues the run exactly."""

import pytest
import torch

from delta_trl.checkpoints import last_complete_checkpoint, resolve_resume


def make_checkpoints(folder, **complete):
    for name, is_complete in complete.items():
        path = folder / name.replace("_", "-")
        path.mkdir(parents=True)
        (path / "model.safetensors").touch()
        if is_complete:
            (path / "trainer_state.json").touch()


def test_last_complete_checkpoint(tmp_path):
    assert last_complete_checkpoint(tmp_path / "missing") is None
    make_checkpoints(tmp_path, checkpoint_9=True, checkpoint_10=True, checkpoint_11=False)
    (tmp_path / "checkpoint-notes").mkdir()
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


@pytest.mark.parametrize("value", [None, False, "false"])
def test_no_resume(tmp_path, value):
    make_checkpoints(tmp_path, checkpoint_1=True)
    assert resolve_resume(value, tmp_path) is None


@pytest.mark.parametrize("value", [True, "true", "True"])
def test_resume_true_finds_the_last_complete_one(tmp_path, value):
    assert resolve_resume(value, tmp_path) is None
    make_checkpoints(tmp_path, checkpoint_1=True, checkpoint_2=False)
    assert resolve_resume(value, tmp_path) == tmp_path / "checkpoint-1"


def test_resume_from_a_named_checkpoint(tmp_path):
    make_checkpoints(tmp_path, checkpoint_1=True, checkpoint_2=False)
    assert resolve_resume(str(tmp_path / "checkpoint-1"), tmp_path) == tmp_path / "checkpoint-1"
    for broken in ("checkpoint-2", "checkpoint-3"):
        with pytest.raises(ValueError, match=f"{broken}.*not a complete checkpoint"):
            resolve_resume(str(tmp_path / broken), tmp_path)


@pytest.mark.parametrize("mode", [{}, {"steps_per_generation": 2}], ids=["aligned", "misaligned"])
def test_resumed_run_continues_bit_for_bit(make_trainer, tmp_path, mode):
    options = {**mode, "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    whole = make_trainer(**options)
    whole.train()
    resumed = make_trainer(**options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))

    def losses(trainer):
        return {e["step"]: e["loss"] for e in trainer.state.log_history if "loss" in e}

    assert losses(resumed) == losses(whole)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
