"""Safe checkpoints on a plain `GRPOTrainer`: which one is complete, and that a resumed run continues exactly."""

import json

import pytest
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOTrainer

from delta_trl.arguments.errors import UsageError
from delta_trl.files import is_complete
from delta_trl.trainer.checkpoints import SafeCheckpoints

from ..trainers import TRL, same_weights


class Plain(SafeCheckpoints, GRPOTrainer):
    pass


EVERY_STEP = {**TRL, "trainer_class": Plain, "save_strategy": "steps", "save_steps": 1}


def make_checkpoints(folder, *steps, last_file="trainer_state.json"):
    for step in steps:
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        (folder / f"checkpoint-{step}" / last_file).write_text("{}")
        (folder / f"checkpoint-{step}" / "optimizer.pt").touch()


def test_what_resume_from_checkpoint_means(make_trainer, tmp_path):
    """The last file of a checkpoint was not begun, or cut off by a kill or a full disk."""
    folder = tmp_path / "run"
    trainer = make_trainer(**EVERY_STEP)
    choose = trainer._checkpoint_to_resume
    with pytest.raises(UsageError, match=r"run/checkpoint-\*': no complete checkpoint"):
        choose(True)
    make_checkpoints(folder, 9, 10, 12, "notes")
    make_checkpoints(folder, 11, last_file="rng_state.pth")
    (folder / "checkpoint-12" / "trainer_state.json").write_text('{"global_step": 2, "log_hist')
    make_checkpoints(folder, 13)
    (folder / "checkpoint-13" / "entropy_ctrl_state.json").write_text('{"entropy_co')  # TRL writes it later
    (folder / "checkpoint-10" / "entropy_ctrl_state.json").write_text('{"entropy_coef": 0.1}')
    last = folder / "checkpoint-10"
    assert choose(True) == choose(str(last)) == last
    assert choose(None) is choose(False) is None
    for broken in ("checkpoint-11", "checkpoint-3"):
        with pytest.raises(UsageError, match=f"{broken}.*no complete checkpoint"):
            choose(str(folder / broken))
    (folder / "trainer_state.json").write_text("{}")  # as of a run that has ended
    with pytest.raises(UsageError, match=r"no state of the optimizer\. Name .*run/checkpoint-10"):
        choose(str(folder))
    (last / "training_settings.json").write_text('{"adapter": {"r": 8}}')
    with pytest.raises(UsageError, match="saved with an adapter"):
        choose(True)
    with_adapter = make_trainer(**EVERY_STEP, peft_config=LoraConfig(target_modules=["q_proj"]))
    assert with_adapter._checkpoint_to_resume(True) == last
    (last / "training_settings.json").write_text('{"adapter": null}')
    with pytest.raises(UsageError, match="saved without an adapter"):
        with_adapter._checkpoint_to_resume(True)


def test_a_resumed_run_continues_bit_for_bit_with_the_prompts_of_its_epoch(make_trainer, tmp_path):
    """At the end of the first epoch of three rollout batches, within the third one, and where nothing is left."""
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
    last = tmp_path / "run" / "checkpoint-8"
    (last / "trainer_state.json").write_text("{")
    for step, checkpoint in ((3, str(last.with_name("checkpoint-3"))), (7, True), (8, True)):
        seen.clear()
        resumed = make_trainer(**options)
        resumed.train(resume_from_checkpoint=checkpoint)
        assert seen == of_whole[step:]  # nothing, if it is finished
        assert resumed.state.global_step == 8
        assert same_weights(resumed, whole)
        if step == 3:
            (last / "trainer_state.json").write_text("{")


def test_a_checkpoint_is_whole_with_its_last_file_alone(make_trainer, tmp_path, monkeypatch):
    """
    What an earlier run left in its folder, under DeepSpeed for example, could be taken for a part of it. TRL writes
    its entropy after the last file.
    """
    make_checkpoints(tmp_path / "run", 1)
    folder = tmp_path / "run" / "checkpoint-1"
    (folder / "global_step1").mkdir()
    trainer = make_trainer(**EVERY_STEP, max_steps=1, use_adaptive_entropy=True)
    save_rng_state = trainer._save_rng_state
    entropy = []

    def look(output_dir):
        entropy.append(json.loads((folder / "entropy_ctrl_state.json").read_text()))
        assert not is_complete(folder)
        save_rng_state(output_dir)

    monkeypatch.setattr(trainer, "_save_rng_state", look)
    trainer.train()
    assert is_complete(folder)
    assert not (folder / "global_step1").exists()
    assert entropy == [json.loads((folder / "entropy_ctrl_state.json").read_text())]
