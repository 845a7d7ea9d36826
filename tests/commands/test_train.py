"""`delta-trl train`: what a folder holds is not written over, and the best checkpoint is kept."""

import json

import pytest
from accelerate import PartialState

from delta_trl.arguments.errors import UsageError
from delta_trl.cli import main
from delta_trl.commands.folder import refuse_another_run, resume_from
from delta_trl.commands.train import saved_model
from delta_trl.files import finish_checkpoint

from ..corpus import tiny


def make_checkpoint(folder, step):
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}")
    return checkpoint


def test_a_run_goes_on_from_its_newest_whole_checkpoint_or_is_not_written_over(tmp_path):
    PartialState()  # as the arguments of a training have it, for the logger
    run = tmp_path / "run"
    output = str(run)
    assert resume_from(None, output) is None
    assert resume_from("true", output) is None  # as launchers restart a run that has no checkpoint yet
    run.mkdir()
    (run / "notes.txt").touch()
    for no in ("false", "no", False):
        assert resume_from(no, output) is None
    (run / "training_settings.json").touch()  # the first step failed
    assert resume_from(None, output) is None
    make_checkpoint(run, 4)
    with pytest.raises(UsageError, match="no checkpoint is whole: checkpoint-4"):
        resume_from("true", output)
    with pytest.raises(UsageError, match=r"\(checkpoint-4\), which .*Choose another folder\.$"):
        resume_from(None, output)
    finish_checkpoint(make_checkpoint(run, 2))
    for yes in ("true", "yes", True):  # YAML's
        assert resume_from(yes, output) == f"{run}/checkpoint-2"
    with pytest.raises(UsageError, match="go on with its run"):
        resume_from(None, output)
    assert resume_from(f"{run}/checkpoint-2", output) == f"{run}/checkpoint-2"


@pytest.mark.parametrize("name", ["trainer_state.json", "config.json", "adapter_config.json"])
def test_a_finished_run_or_a_model_is_never_written_over(tmp_path, name):
    (tmp_path / name).touch()
    for given in (None, "true"):
        with pytest.raises(UsageError, match=f"{name}.*Choose another folder.$"):
            resume_from(given, str(tmp_path))


@pytest.mark.parametrize("name", ["trainer_state.json", "config.json", "training_settings.json", "checkpoint-7"])
def test_what_is_no_run_is_not_mixed_with_one(tmp_path, name):
    refuse_another_run(tmp_path)
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=f"a run or a model \\({name}\\)"):
        refuse_another_run(tmp_path)


@pytest.mark.parametrize(
    "weights", ["model.safetensors", "model-00001-of-00002.safetensors", "adapter_model.safetensors"]
)
def test_the_last_line_tells_whether_whole_weights_were_saved(tmp_path, weights):
    """Under ZeRO-3 without `zero3_save_16bit_model`, a finished run has shards only."""
    for name in ("config.json", "latest", "zero_to_fp32.py", "training_args.bin"):
        (tmp_path / name).touch()
    assert saved_model(str(tmp_path)).startswith(f"No whole weights in {tmp_path}")
    (tmp_path / weights).touch()
    assert saved_model(str(tmp_path)) == f"Model saved to {tmp_path}"


SHARE = {1: 0.25, 2: 0.75, 3: 0.5, 4: 0.5}  # of completions that the reward below takes for right, by step


def reward_by_step(completions, trainer_state, **kwargs):
    right = round(SHARE.get(trainer_state.global_step, 0) * len(completions))
    return [float(i < right) for i in range(len(completions))]


def test_the_best_checkpoint_is_kept(tmp_path, capsys):
    """By a reward that only measures, although a newer one would push it out of save_total_limit."""
    tiny.dataset(4).to_json(tmp_path / "train.jsonl")
    recipe = tiny.recipe(
        tmp_path,
        eval_dataset_name=str(tmp_path / "train.jsonl"),
        reward_funcs=["tests.corpus.tiny.reward_letters", "tests.commands.test_train.reward_by_step"],
        reward_weights=[1.0, 0.0],
        max_completion_length=4,
        max_steps=4,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=16,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=2,
        metric_for_best_model="rewards/reward_by_step/mean",
        log_token_credit=1,
    )
    assert main(["train", "--config", recipe]) == 0
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4"]
    printed = capsys.readouterr().out
    assert f"Best checkpoint: {tmp_path / 'run' / 'checkpoint-2'}" in printed
    assert f"delta-trl inspect {tmp_path / 'run'}" in printed
    assert "# Model Card for run\n" in (tmp_path / "run" / "README.md").read_text()
    assert main(["inspect", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "run" / "report.html")
    assert "<article>" in (tmp_path / "run" / "report.html").read_text()
    settings = json.loads((tmp_path / "run" / "training_settings.json").read_text())
    names = (str(tmp_path / "model"), str(tmp_path / "train.jsonl"))
    assert (settings["model"], settings["dataset"]) == names
    assert settings["recipe"].keys() > {"reward_funcs", "model_revision"}
    state = tmp_path / "run" / "trainer_state.json"
    assert json.loads(state.read_text())["best_metric"] == 0.75
    assert main(["train", "--config", recipe]) == 2
    assert "output_dir" in capsys.readouterr().err
    assert main(["train", "--config", recipe, "--resume_from_checkpoint", "true", "--max_steps", "5"]) == 0
    assert json.loads(state.read_text())["global_step"] == 5
