"""Safe checkpoints on a plain `GRPOTrainer`: which one is complete, and that a resumed run continues exactly."""

import json
from pathlib import Path

import pytest
from datasets import Dataset
from trl import GRPOTrainer

from delta_trl.files import is_complete
from delta_trl.trainer.checkpoints import SafeCheckpoints, last_complete_checkpoint

from ..trainers import TRL, same_weights


class Plain(SafeCheckpoints, GRPOTrainer):
    pass


EVERY_STEP = {**TRL, "trainer_class": Plain, "save_strategy": "steps", "save_steps": 1}


def make_checkpoints(folder, *steps, last_file="trainer_state.json"):
    for step in steps:
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        (folder / f"checkpoint-{step}" / last_file).write_text("{}")
        (folder / f"checkpoint-{step}" / "optimizer.pt").touch()


def test_the_last_complete_checkpoint(tmp_path):
    """The last file of one was begun when the disk was full, or the process killed; TRL writes its entropy later."""
    assert last_complete_checkpoint(tmp_path / "missing") is None
    make_checkpoints(tmp_path, 9, 10, 12, 13, "notes")
    make_checkpoints(tmp_path, 11, last_file="rng_state.pth")
    (tmp_path / "checkpoint-12" / "trainer_state.json").write_text('{"global_step": 2, "log_hist')
    (tmp_path / "checkpoint-13" / "entropy_ctrl_state.json").write_text('{"entropy_co')
    (tmp_path / "checkpoint-10" / "entropy_ctrl_state.json").write_text('{"entropy_coef": 0.1}')
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


def test_a_checkpoint_is_whole_with_its_last_file_alone(make_trainer, monkeypatch):
    """One that is written again, after going back, has an old last file. TRL writes its entropy after the new one."""
    trainer = make_trainer(**EVERY_STEP, max_steps=1, use_adaptive_entropy=True)
    folder = Path(trainer.args.output_dir) / "checkpoint-1"
    make_checkpoints(folder.parent, 1)
    found = []
    save_rng_state = trainer._save_rng_state

    def look(output_dir):
        found.append(json.loads((folder / "entropy_ctrl_state.json").read_text()))
        assert not is_complete(folder)
        save_rng_state(output_dir)

    monkeypatch.setattr(trainer, "_save_rng_state", look)
    trainer.train()
    assert is_complete(folder)
    assert found == [json.loads((folder / "entropy_ctrl_state.json").read_text())]


def test_what_resume_from_checkpoint_means(make_trainer, tmp_path):
    folder = tmp_path / "run"
    trainer = make_trainer(**EVERY_STEP)
    with pytest.raises(ValueError, match=r"run/checkpoint-\*': no complete checkpoint"):
        trainer._checkpoint_to_resume(True)
    make_checkpoints(folder, 1)
    make_checkpoints(folder, 2, last_file="rng_state.pth")
    for value in (True, "true", "yes", str(folder / "checkpoint-1")):
        assert trainer._checkpoint_to_resume(value) == folder / "checkpoint-1"
    for value in (None, False, "false", "no"):
        assert trainer._checkpoint_to_resume(value) is None
    for broken in ("checkpoint-2", "checkpoint-3"):
        with pytest.raises(ValueError, match=f"{broken}.*no complete checkpoint"):
            trainer._checkpoint_to_resume(str(folder / broken))
    (folder / "trainer_state.json").write_text("{}")  # as of a run that has ended
    with pytest.raises(ValueError, match=r"no state of the optimizer\. Name .*run/checkpoint-1"):
        trainer._checkpoint_to_resume(str(folder))
    (folder / "checkpoint-1" / "training_settings.json").write_text('{"adapter": {"r": 8}}')
    with pytest.raises(ValueError, match="saved with an adapter"):
        trainer._checkpoint_to_resume(True)


def test_a_resumed_run_continues_bit_for_bit_with_the_prompts_of_its_epoch(make_trainer, tmp_path):
    """At the end of the first epoch of three rollout batches, and within the third one."""
    seen = []

    def reward(prompts, completions, **_):
        seen.append(list(dict.fromkeys(prompts)))
        return [float(len(set(completion))) for completion in completions]

    data = Dataset.from_dict({"prompt": [f"{i}+{i}=" for i in range(6)]})
    options = {"reward_funcs": reward, "train_dataset": data, "max_steps": 8, **EVERY_STEP}
    whole = make_trainer(**options)
    whole.train()
    of_whole = seen.copy()
    assert of_whole[:3] != of_whole[3:6]
    for step in (3, 7):
        seen.clear()
        resumed = make_trainer(**options)
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{step}"))
        assert seen == of_whole[step:]
        assert same_weights(resumed, whole)


def test_training_resumes_from_whole_checkpoints_only(make_trainer, tmp_path):
    options = {"max_steps": 2, **EVERY_STEP}
    make_trainer(**options).train()
    (tmp_path / "run" / "checkpoint-2" / "trainer_state.json").write_text("{")
    resumed = make_trainer(**options)
    resumed.train(resume_from_checkpoint=True)
    assert is_complete(tmp_path / "run" / "checkpoint-2")
    assert [entry["step"] for entry in resumed.state.log_history if "loss" in entry] == [1, 2]


def test_a_checkpoint_begins_with_an_empty_folder(make_trainer, tmp_path):
    """What an earlier run left there, under DeepSpeed for example, could be taken for a part of this one."""
    left = tmp_path / "run" / "checkpoint-1" / "global_step1"
    left.mkdir(parents=True)
    (left.parent / "latest").write_text(left.name)
    make_trainer(max_steps=1, **EVERY_STEP).train()
    assert is_complete(left.parent)
    assert not {"global_step1", "latest"} & {path.name for path in left.parent.iterdir()}


def test_a_finished_run_trains_no_further(make_trainer):
    options = {"max_steps": -1, "num_train_epochs": 0.25, **EVERY_STEP}
    whole = make_trainer(**options)
    whole.train()
    assert whole.state.global_step == 2
    resumed = make_trainer(**options)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 2
    assert same_weights(resumed, whole)
