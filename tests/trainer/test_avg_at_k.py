"""Evaluation during training: avg@k of the eval set, and the best checkpoint by it."""

import json
import os
import subprocess
import sys

import pytest
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

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
