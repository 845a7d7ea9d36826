"""Safe checkpoints on a plain `GRPOTrainer`: which one is complete, and that a resumed run continues exactly."""

import json
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from delta_trl.files import is_complete
from delta_trl.trainer.checkpoints import SafeCheckpoints, last_complete_checkpoint, resolve_resume

from ..corpus import tiny
from ..trainers import logged


class Plain(SafeCheckpoints, GRPOTrainer):
    pass


@pytest.fixture
def make_plain(make_trainer):
    return lambda **options: make_trainer(trainer_class=Plain, config_class=GRPOConfig, **options)


def make_checkpoints(folder, **complete):
    for name, whole in complete.items():
        path = folder / name.replace("_", "-")
        path.mkdir(parents=True)
        (path / "model.safetensors").touch()
        (path / "rng_state.pth").touch()
        if whole:
            (path / "trainer_state.json").write_text("{}")


def test_last_complete_checkpoint(tmp_path):
    assert last_complete_checkpoint(tmp_path / "missing") is None
    make_checkpoints(tmp_path, checkpoint_9=True, checkpoint_10=True, checkpoint_11=False)
    (tmp_path / "checkpoint-notes").mkdir()
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


def test_a_checkpoint_that_is_cut_off_is_passed_over(tmp_path):
    """Its last file was begun when the disk was full, or the process killed."""
    make_checkpoints(tmp_path, checkpoint_1=True, checkpoint_2=True)
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text('{"global_step": 2, "log_hist')
    assert resolve_resume(True, tmp_path) == tmp_path / "checkpoint-1"
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        resolve_resume(str(tmp_path / "checkpoint-2"), tmp_path)


def test_the_entropy_that_trl_writes_last_may_be_cut_off(tmp_path):
    make_checkpoints(tmp_path, checkpoint_1=True, checkpoint_2=True)
    (tmp_path / "checkpoint-1" / "entropy_ctrl_state.json").write_text('{"entropy_coef": 0.1}')
    (tmp_path / "checkpoint-2" / "entropy_ctrl_state.json").write_text('{"entropy_co')
    assert resolve_resume(True, tmp_path) == tmp_path / "checkpoint-1"


def test_the_entropy_is_there_before_a_checkpoint_counts_as_whole(make_plain, monkeypatch):
    trainer = make_plain(save_strategy="steps", save_steps=1, max_steps=1, use_adaptive_entropy=True)
    found = []
    save = trainer._save_rng_state

    def look(folder):
        found.append(json.loads((Path(folder) / "entropy_ctrl_state.json").read_text()))
        save(folder)

    monkeypatch.setattr(trainer, "_save_rng_state", look)
    trainer.train()
    whole = Path(trainer.args.output_dir, "checkpoint-1", "entropy_ctrl_state.json")
    assert found == [json.loads(whole.read_text())]


def test_a_checkpoint_that_is_written_again_is_incomplete_until_its_end(make_plain, monkeypatch):
    """As after going back to an earlier one: its old last file would stand beside half of the new."""
    trainer = make_plain(save_strategy="steps", save_steps=1, max_steps=1)
    folder = Path(trainer.args.output_dir) / "checkpoint-1"
    make_checkpoints(folder.parent, checkpoint_1=True)
    seen = []
    save = trainer.save_model

    def look(output_dir=None, **kwargs):
        seen.append(is_complete(folder))
        save(output_dir, **kwargs)

    monkeypatch.setattr(trainer, "save_model", look)
    trainer.train()
    assert seen == [False]
    assert is_complete(folder)


def test_what_resume_from_checkpoint_means(tmp_path):
    for value in (True, "true", "yes"):
        assert resolve_resume(value, tmp_path) is None
    make_checkpoints(tmp_path, checkpoint_1=True, checkpoint_2=False)
    for value in (True, "true", "yes", str(tmp_path / "checkpoint-1")):
        assert resolve_resume(value, tmp_path) == tmp_path / "checkpoint-1"
    for value in (None, False, "false", "no"):
        assert resolve_resume(value, tmp_path) is None
    for broken in ("checkpoint-2", "checkpoint-3"):
        with pytest.raises(ValueError, match=f"{broken}.*not a complete checkpoint"):
            resolve_resume(str(tmp_path / broken), tmp_path)


@pytest.mark.parametrize("mode", [{}, {"steps_per_generation": 2}], ids=["aligned", "misaligned"])
def test_resumed_run_continues_bit_for_bit(make_plain, tmp_path, mode):
    options = {**mode, "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    whole = make_plain(**options)
    whole.train()
    resumed = make_plain(**options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert logged(resumed, "loss") == logged(whole, "loss")
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_resumed_run_takes_the_prompts_of_its_epoch(make_plain, tmp_path, shuffled):
    """At the end of the first epoch of three rollout batches, and within the second and third one."""
    seen = []

    def reward(prompts, completions, **_):
        seen.append(list(dict.fromkeys(prompts)))
        return [float(len(set(completion))) for completion in completions]

    data = Dataset.from_dict({"prompt": [f"{i}+{i}=" for i in range(6)]})
    options = {"reward_funcs": reward, "train_dataset": data, "max_steps": 9, "shuffle_dataset": shuffled}
    options |= {"save_strategy": "steps", "save_steps": 1, "output_dir": str(tmp_path / "run")}
    whole = make_plain(**options)
    whole.train()
    of_whole = seen.copy()
    assert (of_whole[:3] == of_whole[3:6]) is not shuffled
    for step in (3, 4, 7):
        seen.clear()
        resumed = make_plain(**options)
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{step}"))
        assert seen == of_whole[step:]
        for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_training_resumes_from_whole_checkpoints_only(make_plain, tmp_path):
    options = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    with pytest.raises(ValueError, match="no complete checkpoint under"):
        make_plain(**options).train(resume_from_checkpoint=True)
    make_plain(**options).train()
    (tmp_path / "run" / "checkpoint-2" / "trainer_state.json").write_text("{")
    resumed = make_plain(**options)
    resumed.train(resume_from_checkpoint=True)
    assert is_complete(tmp_path / "run" / "checkpoint-2")
    assert [entry["step"] for entry in resumed.state.log_history if "loss" in entry] == [1, 2]
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))


@pytest.mark.parametrize("length", [{"max_steps": 2}, {"max_steps": -1, "num_train_epochs": 0.25}], ids=str)
def test_a_finished_run_trains_no_further(make_plain, length):
    options = {**length, "save_strategy": "steps", "save_steps": 1}
    whole = make_plain(**options)
    whole.train()
    assert whole.state.global_step == 2
    resumed = make_plain(**options)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 2
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


class Counter:
    """A part of checkpoints."""

    value = 0

    def save(self, folder):
        (folder / "counter").write_text(str(self.value))

    def load(self, folder):
        self.value = int((folder / "counter").read_text())


def test_checkpoints_hold_registered_parts(make_plain, tmp_path):
    """They are written before the file that makes a checkpoint complete, and loaded only on resuming."""
    options = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    whole, resumed = (make_plain(**options) for _ in range(2))
    for trainer, value in ((whole, 7), (resumed, 1)):
        trainer.checkpoint_parts.append(Counter())
        trainer.checkpoint_parts[0].value = value
    whole.train()
    assert whole.checkpoint_parts[0].value == 7
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    assert resumed.checkpoint_parts[0].value == 7


class Anneals(TrainerCallback):
    """A curriculum: TRL reads these at every step."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        args.delta = 2.0 + state.global_step
        next(iter(model.parameters())).requires_grad_(state.global_step == 0)


def test_a_callback_may_change_settings(make_plain, tmp_path):
    """Checkpoints hold the settings that the run began with, and the same script goes on."""
    options = {"delta": 2.0, "save_strategy": "steps", "save_steps": 1, "trainer_options": {"callbacks": [Anneals()]}}
    make_plain(**options, max_steps=2).train()
    record = json.loads((tmp_path / "run" / "checkpoint-2" / "training_settings.json").read_text())
    assert record["arguments"]["delta"] == 2.0
    options["trainer_options"] = {"callbacks": [Anneals()]}
    trainer = make_plain(**options, max_steps=3)
    assert trainer.train(resume_from_checkpoint=True).global_step == 3


def reward_by_step(completions, trainer_state, **kwargs):
    """Right for a share of the completions that depends on the step: best at step 2."""
    right = {1: 0.25, 2: 0.75, 3: 0.5}.get(trainer_state.global_step, 0) * len(completions)
    return [float(i < right) for i in range(len(completions))]


def test_the_best_checkpoint_by_a_reward_of_trls_metrics(make_trainer, tmp_path):
    """As docs/recipes.md has it: transformers' own way, with the name of a reward."""
    trainer = make_trainer(
        reward_funcs=reward_by_step,
        trainer_options={"eval_dataset": tiny.dataset(4)},
        max_steps=3,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=16,
        save_strategy="best",
        metric_for_best_model="rewards/reward_by_step/mean",
    )
    trainer.train()
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-2")
    assert trainer.state.best_metric == 0.75


def test_a_checkpoint_of_deepspeed_needs_deepspeed(make_trainer, tmp_path):
    """Without it, the optimiser and its schedule would begin anew, silently."""
    options = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    make_trainer(**options).train()
    (tmp_path / "run" / "checkpoint-1" / "global_step1").mkdir()
    with pytest.raises(ValueError, match="saved under DeepSpeed"):
        make_trainer(**options).train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
