"""Evaluation during training: avg@k of the eval set, and the best checkpoint by it."""

import json
import os
import subprocess
import sys
from functools import partial

import pytest
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from delta_trl.cli import main
from delta_trl.trainer.avg_at_k import ReportsAvgAtK

from ..corpus import tiny


K = 4
# of each problem: rewards of its K completions, None where they cannot be had
REWARDS = {0: [1, 1, 1, 1], 1: [1, 0, 0, 0], 2: [0, None, 1, None], 3: [0, 0, 0, 0], 4: [None] * 4}
EXPECTED = (1 + 0.25 + 0.5 + 0) / 4


def verified(completions, number, **kwargs):
    """Rewards by problem, in place of the completions' merits; completions of a problem come together."""
    seen = dict.fromkeys(number, 0)
    rewards = []
    for one in number:
        rewards.append(REWARDS[one][seen[one] % K])
        seen[one] += 1
    return [reward if reward is None else float(reward) for reward in rewards]


def penalty(completions, **kwargs):
    return [-10.0] * len(completions)


def eval_dataset():
    return Dataset.from_list([{"prompt": f"{i}+1=", "number": i} for i in REWARDS])


class Plain(ReportsAvgAtK, GRPOTrainer):
    pass


def evaluate(make_trainer, **options) -> dict:
    trainer = make_trainer(
        trainer_class=Plain,
        config_class=GRPOConfig,
        reward_funcs=[verified, penalty],
        train_dataset=eval_dataset(),
        trainer_options={"eval_dataset": eval_dataset()},
        num_generations_eval=K,
        eval_strategy="steps",
        **options,
    )
    return trainer.evaluate()


@pytest.mark.parametrize("batch_size", [4, 8, 12, 32])
def test_avg_at_k_of_the_first_reward(make_trainer, batch_size):
    """Whatever the batches, the last of which is not full: each problem counts once, and None is no 0."""
    metrics = evaluate(make_trainer, per_device_eval_batch_size=batch_size)
    assert metrics["eval_avg_at_k"] == pytest.approx(EXPECTED)
    assert metrics["eval_reward"] < -5  # TRL's sum of all rewards


def test_after_an_evaluation_that_failed(make_trainer):
    """Rewards of training are not kept for it."""

    def fails_once(completions, calls=[], **kwargs):  # noqa: B006
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("busy")
        return [1.0] * len(completions)

    options = {"trainer_class": Plain, "config_class": GRPOConfig, "reward_funcs": fails_once}
    trainer = make_trainer(**options, trainer_options={"eval_dataset": eval_dataset()})
    with pytest.raises(ConnectionError):
        trainer.evaluate()
    trainer.train()
    assert trainer._eval_rewards is None


@pytest.mark.slow
def test_avg_at_k_on_two_processes(tmp_path):
    """Five problems of four completions fill three batches of four for each of two processes, and leave four over."""
    config = "accelerate_configs/cpu_ddp.yaml"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, "--main_process_port", "0"]
    done = subprocess.run(
        [*command, "-m", "tests.trainer.test_avg_at_k", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["processes"] == 2
    assert metrics["eval_avg_at_k"] == pytest.approx(EXPECTED)


def reward_of_one_problem(completions, solution, **kwargs):
    return [float(answer == "2") for answer in solution]


def test_terminal_and_card_say_the_same(recipe, tmp_path, capsys):
    """One of five problems is solved, in three batches of which the last is half full: TRL's mean over batches is
    another number."""
    tiny.dataset(5).to_json(tmp_path / "train.jsonl")
    options = {"reward_funcs": ["tests.trainer.test_avg_at_k.reward_of_one_problem"], "max_steps": 1}
    assert main(["train", "--config", recipe(per_device_eval_batch_size=8, save_strategy="no", **options)]) == 0
    assert "evaluation: avg@4 0.200" in capsys.readouterr().out
    assert "avg@4 0.200" in (tmp_path / "run" / "README.md").read_text()


# --- the best checkpoint ---

SHARE = {1: 0.25, 2: 0.75, 3: 0.5, 4: 0.5}  # of completions that the reward below takes for right, by step


def reward_by_step(completions, trainer_state, **kwargs):
    right = round(SHARE.get(trainer_state.global_step, 0) * len(completions))
    return [float(i < right) for i in range(len(completions))]


@pytest.fixture
def recipe(tmp_path):
    tiny.dataset(4).to_json(tmp_path / "train.jsonl")
    options = {
        "eval_dataset_name": str(tmp_path / "train.jsonl"),
        "reward_funcs": ["tests.trainer.test_avg_at_k.reward_by_step"],
        "max_completion_length": 4,
        "max_steps": 4,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "per_device_eval_batch_size": 16,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": 1,
    }
    return partial(tiny.recipe, tmp_path, **options)


def checkpoints(tmp_path):
    return sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*"))


@pytest.mark.parametrize("save_steps", [1, 3, 100])
def test_the_best_checkpoint_is_kept(recipe, tmp_path, capsys, save_steps):
    """Also where no checkpoint was due at its step, and although newer ones push it out of save_total_limit."""
    assert main(["train", "--config", recipe(save_steps=save_steps, save_total_limit=2)]) == 0
    assert checkpoints(tmp_path) == ["checkpoint-2", "checkpoint-4"]
    best = f"Best checkpoint: {tmp_path / 'run' / 'checkpoint-2'} (avg_at_k 0.75, sampled at temperature 1, top-p 1)"
    assert best in capsys.readouterr().out
    state = json.loads((tmp_path / "run" / "trainer_state.json").read_text())
    assert state["best_metric"] == 0.75
    logged = {entry["step"]: entry["eval_avg_at_k"] for entry in state["log_history"] if "eval_avg_at_k" in entry}
    assert logged == pytest.approx(SHARE)


def test_a_recipe_may_choose_its_own_metric(recipe, tmp_path, capsys):
    options = {"metric_for_best_model": "avg_at_k", "greater_is_better": False, "load_best_model_at_end": True}
    assert main(["train", "--config", recipe(save_steps=1, **options)]) == 0
    assert "checkpoint-1 (avg_at_k 0.25, sampled at" in capsys.readouterr().out
    assert "The model is that of checkpoint-1, the best one." in (tmp_path / "run" / "README.md").read_text()
    best, final = (tmp_path / "run" / folder / "model.safetensors" for folder in ("checkpoint-1", ""))
    assert best.read_bytes() == final.read_bytes()


def test_without_checkpoints_avg_at_k_is_only_logged(recipe, tmp_path, capsys):
    assert main(["train", "--config", recipe(save_strategy="no", max_steps=1)]) == 0
    assert checkpoints(tmp_path) == []
    assert "Best checkpoint" not in capsys.readouterr().out


def test_a_training_file_is_not_taken_for_an_evaluation_set(recipe, capsys):
    assert main(["train", "--config", recipe(eval_dataset_name=None)]) == 2
    assert "which has no split to evaluate on: give `eval_dataset_name`" in capsys.readouterr().err


if __name__ == "__main__":  # what test_avg_at_k_on_two_processes launches
    from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer

    args = DeltaGRPOConfig(
        output_dir=sys.argv[1],
        use_cpu=True,
        bf16=False,
        report_to="none",
        num_generations=K,
        num_generations_eval=K,
        max_completion_length=4,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        eval_strategy="steps",
    )
    trainer = DeltaGRPOTrainer(
        tiny.model(),
        [verified, penalty],
        args,
        eval_dataset(),
        eval_dataset=eval_dataset(),
        processing_class=tiny.tokenizer(),
    )
    metrics = trainer.evaluate()
    if trainer.accelerator.is_main_process:
        metrics["processes"] = trainer.accelerator.num_processes
        with open(f"{sys.argv[1]}/metrics.json", "w") as file:
            json.dump(metrics, file)
    trainer.accelerator.end_training()
