"""Safe checkpoints on a plain `GRPOTrainer`: which one is whole, and that a resumed run continues exactly."""

import json
import os
import shutil
import signal
import time
from pickle import UnpicklingError

import pytest
from datasets import Dataset
from transformers import TrainerCallback
from transformers.trainer_jit_checkpoint import CheckpointManager
from trl import GRPOTrainer

from delta_trl.arguments.errors import UsageError
from delta_trl.files import MANIFEST, checkpoints, missing_part
from delta_trl.report.reader import read_run
from delta_trl.trainer.checkpoints import SafeCheckpoints
from delta_trl.trainer.folder_lock import LOCK, only_run_in

from ..trainers import LORA, TRL, same_weights
from ..trainers import make_trainer as new_trainer


class Plain(SafeCheckpoints, GRPOTrainer):
    pass


EVERY_STEP = {**TRL, "trainer_class": Plain, "save_strategy": "steps", "save_steps": 1}


class Part:
    """What has a state of its own."""

    def state_dict(self):
        return {"count": 3}

    def load_state_dict(self, state):
        pass


class OfObjects(Part):
    """Whose state is no tensor or plain value."""

    def state_dict(self):
        return {"part": self}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a run with three whole checkpoints."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    trainer = new_trainer(**EVERY_STEP, output_dir=str(folder), max_steps=3, use_adaptive_entropy=True)
    trainer.checkpoint_parts.append(Part())
    trainer.train()
    return folder


@pytest.fixture
def trainer(make_trainer, saved, tmp_path):
    """A trainer whose folder has a copy of these checkpoints."""
    shutil.copytree(saved, tmp_path / "run")
    return make_trainer(**EVERY_STEP)


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_a_checkpoint_counts_with_all_of_its_files_and_whole(trainer, saved, tmp_path, caplog):
    """Of an interrupted copy, each file may be missing, or cut off."""
    folder = tmp_path / "run"
    choose = trainer._checkpoint_to_resume
    last, before = folder / "checkpoint-3", folder / "checkpoint-2"
    assert choose(True) == choose(str(last)) == last
    assert choose(before) == before
    assert choose(None) is choose(False) is None
    names = {file.name for file in last.iterdir()}
    states = {"optimizer.pt", "scheduler.pt", "rng_state.pth", "Part.pt", "trainer_state.json"}
    written_twice = {"entropy_ctrl_state.json"}  # by TRL, after all that transformers writes
    assert states | written_twice | {"model.safetensors", "training_settings.json", MANIFEST} <= names
    for name in sorted(names):
        for damage in (os.remove, cut):
            damage(last / name)
            with pytest.raises(UsageError, match=f"checkpoint-3': {name}.*Name .*run/checkpoint-2"):
                choose(str(last))
            caplog.clear()
            assert choose(True) == before
            [said] = caplog.messages
            assert f"from {before}. Not whole, and passed over: checkpoint-3 ({name}" in said
            shutil.copy(saved / "checkpoint-3" / name, last / name)
    (last / "notes.txt").write_text("what somebody has added is no matter")
    assert choose(True) == last
    cut(last / MANIFEST)
    trainer.args.output_dir = str(tmp_path / "another run")
    with pytest.raises(UsageError, match=r"Name .*run/checkpoint-2\."):
        choose(str(last))


def test_without_a_whole_checkpoint_nothing_starts_anew(trainer, tmp_path):
    folder = tmp_path / "run"
    for checkpoint in checkpoints(folder).values():
        cut(checkpoint / "scheduler.pt")
    part = r"\(scheduler.pt has \d+ of \d+ bytes\)"
    of_all = ", ".join(f"checkpoint-{step} {part}" for step in (3, 2, 1))
    with pytest.raises(UsageError, match=f"no checkpoint is whole: {of_all}. Name"):
        trainer.train(resume_from_checkpoint=True)
    with pytest.raises(UsageError, match="Name another checkpoint"):
        trainer.train(resume_from_checkpoint=str(folder / "checkpoint-3"))
    with pytest.raises(UsageError, match="run/checkpoint-4': there is no checkpoint"):
        trainer.train(resume_from_checkpoint=str(folder / "checkpoint-4"))
    shutil.rmtree(folder)
    with pytest.raises(UsageError, match="run': there is no checkpoint"):
        trainer.train(resume_from_checkpoint=True)


def test_a_checkpoint_of_grpo_trainer_is_gone_on_with_by_its_path(make_trainer, tmp_path, caplog):
    options = {**EVERY_STEP, "max_steps": 2}
    make_trainer(**options | {"trainer_class": GRPOTrainer, "max_steps": 1}).train()
    checkpoint = tmp_path / "run" / "checkpoint-1"
    trainer = make_trainer(**options)
    with pytest.raises(UsageError, match=f"no checkpoint is whole: checkpoint-1 .{MANIFEST}, which is written last"):
        trainer.train(resume_from_checkpoint=True)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert trainer.state.global_step == 2
    assert any("whether it is whole is not known" in message for message in caplog.messages)
    assert "other settings" not in caplog.text


def test_a_checkpoint_of_another_kind_is_refused(make_trainer, trainer, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(UsageError, match="saved without an adapter"):
        make_trainer(**EVERY_STEP, **LORA)._checkpoint_to_resume(True)
    adapter = {**EVERY_STEP, **LORA, "output_dir": str(tmp_path / "adapter"), "max_steps": 1}
    make_trainer(**adapter).train()
    with pytest.raises(UsageError, match="saved with an adapter"):
        trainer._checkpoint_to_resume(str(tmp_path / "adapter" / "checkpoint-1"))
    shutil.rmtree(folder)
    without_states = make_trainer(**EVERY_STEP, save_only_model=True, max_steps=1)
    without_states.train()
    with pytest.raises(UsageError, match="saved with `save_only_model`"):
        without_states.train(resume_from_checkpoint=True)


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


def test_older_checkpoints_go_and_the_push_comes_when_the_new_one_is_whole(make_trainer, tmp_path):
    """What an earlier run left in its folder, under DeepSpeed for example, could be taken for a part of it."""
    folder = tmp_path / "run"
    (folder / "checkpoint-1" / "global_step1").mkdir(parents=True)
    trainer = make_trainer(**EVERY_STEP, max_steps=4, save_total_limit=1, use_adaptive_entropy=True)
    whole = []
    save_model = trainer.save_model

    def push(checkpoint):
        whole.append([step for step, path in checkpoints(folder).items() if missing_part(path) is None])
        assert not (folder / "checkpoint-1" / "global_step1").exists()

    def save(output_dir, **options):
        if output_dir.endswith("checkpoint-4"):
            raise KeyboardInterrupt
        save_model(output_dir, **options)

    trainer._push_from_checkpoint = push
    trainer.save_model = save
    trainer.args.push_to_hub = True
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert whole == [[1], [1, 2], [2, 3]]
    assert (trainer.args.save_total_limit, trainer.args.push_to_hub) == (1, True)


def test_a_state_that_cannot_be_read_back_is_an_error_at_once(make_trainer):
    trainer = make_trainer(**EVERY_STEP, max_steps=1)
    trainer.checkpoint_parts.append(OfObjects())
    with pytest.raises(UnpicklingError, match="OfObjects"):
        trainer.train()


@pytest.mark.parametrize(("has_times", "kept"), [(True, [2]), (False, [2, 3])])
def test_what_an_earlier_run_left_behind_goes_first(make_trainer, trainer, tmp_path, monkeypatch, has_times, kept):
    """
    Its checkpoints have higher numbers than those of the run that goes on from an earlier one. Where files have no
    times, the new one stays, too.
    """
    if not has_times:
        monkeypatch.setattr("os.path.getmtime", lambda path: 0.0)
    goes_on = make_trainer(**EVERY_STEP, max_steps=2, save_total_limit=1)
    goes_on.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    assert list(checkpoints(tmp_path / "run")) == kept


def test_a_checkpoint_that_transformers_saves_on_a_signal_is_whole(make_trainer, tmp_path):
    class Signal(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            CheckpointManager(trainer).execute_jit_checkpoint()

    trainer = make_trainer(**{**EVERY_STEP, "save_strategy": "no"}, max_steps=1)
    trainer.add_callback(Signal())
    trainer.train()
    assert missing_part(tmp_path / "run" / "checkpoint-1") is None


def test_a_folder_has_one_run_at_a_time(make_trainer, tmp_path):
    """While it trains, and no longer: a notebook trains twice. A process that it has forked may live on."""
    told = []
    children = []

    def reward(completions, **_):
        with pytest.raises(UsageError) as error:
            other.train()
        told.append(str(error.value))
        if not children:
            children.append(os.fork())
            if children == [0]:
                time.sleep(60)
                os._exit(0)
        return [float(i % 2) for i in range(len(completions))]

    trainer, other = (make_trainer(**TRL | {"trainer_class": Plain}, reward_funcs=reward) for _ in range(2))
    (tmp_path / "run" / LOCK).write_text("process 1 on a machine where a run was killed")
    trainer.train()
    assert all(f"another run trains there, process {os.getpid()} on " in message for message in told)
    trainer.train()
    assert len(told) == 4
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    folder = tmp_path / "runs" / "new"
    with only_run_in(str(folder)):
        assert (folder / LOCK).exists()
    assert "cannot be locked ([Errno 38] Function not implemented)" in caplog.text


def test_the_report_follows_a_run_that_goes_on(make_trainer, tmp_path):
    """
    From an earlier checkpoint, while later ones are there: before its first checkpoint, after it, at its end. Also
    where its folder has been moved.
    """
    levels = [0]
    interrupted_at = {3: 1, 2: 2}  # steps by level

    def reward(completions, **_):
        if trainer.state.global_step == interrupted_at.get(levels[-1]):
            raise KeyboardInterrupt
        return [levels[-1] + i % 2 for i in range(len(completions))]

    def rewards() -> list[float]:
        return read_run(tmp_path / "copy").logged("reward").tolist()

    options = {**EVERY_STEP, "reward_funcs": reward, "max_steps": 3}
    trainer = make_trainer(**options)
    trainer.train()
    trainer.save_state()
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert rewards() == [0.5, 0.5, 0.5]
    for level, steps, expected in ((3, 3, [0.5]), (2, 3, [0.5, 2.5]), (1, 2, [0.5, 1.5])):
        levels.append(level)
        trainer = make_trainer(**options | {"max_steps": steps})
        try:
            trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
            trainer.save_state()
        except KeyboardInterrupt:
            pass
        shutil.rmtree(tmp_path / "copy")
        shutil.copytree(tmp_path / "run", tmp_path / "copy", copy_function=shutil.copyfile)
        (tmp_path / "run").rename(tmp_path / "away")
        assert rewards() == expected
        (tmp_path / "away").rename(tmp_path / "run")
    state = json.loads((tmp_path / "copy" / "trainer_state.json").read_text())
    assert state["global_step"] == 2
