"""A trainer that checks every rollout batch from vLLM against a plain forward pass of the policy."""

from pathlib import Path

import torch
from accelerate.utils import gather_object
from datasets import load_dataset
from peft import LoraConfig

from delta_trl import DeltaGRPOTrainer
from delta_trl.rewards import math_reward

from ..credit import oracle
from ..trainers import make_trainer, plain_forward, token_vectors, valid_tokens


MODEL = "recipes/quickstart/model"  # in float32
ROLLOUTS = 3


class CheckedTrainer(DeltaGRPOTrainer):
    """
    Attributes:
        checks (`list[dict]`): Of each rollout batch, over this process's rows:
            - `sampling`: vLLM's log-probabilities against a plain forward of the policy, largest difference;
            - `coefficients`: against the float64 oracle, on hidden states of that forward, of all processes;
            - `moved`: how far the policy's log-probabilities of the first rollout batch are from what they were;
            - `varied`: standard deviation of the coefficients.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.checks = []
        self.first = None

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        valid = valid_tokens(batch)
        ours = batch["token_coefficients"][valid]
        with torch.no_grad():
            hidden, log_probs = plain_forward(self.model, batch, self.temperature)
            self.first = self.first or (batch, log_probs)
            first_batch, before = self.first
            _, now = plain_forward(self.model, first_batch, self.temperature)
        everyones = gather_object([token_vectors(batch, hidden, log_probs)])  # in the order of the processes
        vectors, advantages = zip(*everyones, strict=True)
        coefficients, _ = oracle.coefficients(torch.cat(vectors), torch.cat(advantages))
        lengths = [len(of_process) for of_process in vectors]
        by_process = torch.tensor(coefficients).split(lengths)
        expected = by_process[self.accelerator.process_index]
        differences = {
            "sampling": (batch["sampling_per_token_logps"] - log_probs)[valid],
            "coefficients": ours - expected,
            "moved": (now - before)[valid_tokens(first_batch)],
        }
        largest = {name: difference.abs().max().item() for name, difference in differences.items()}
        self.checks.append({**largest, "varied": ours.std().item()})
        return batch


def make(folder: Path, lora: bool = False, processes: int = 1, steps_per_generation: int = 1, **changes):
    """A trainer with vLLM for `ROLLOUTS` rollout batches of 8 prompts * 8 completions over all processes."""
    options = {
        "output_dir": str(folder),
        "use_vllm": True,
        "per_device_train_batch_size": 64 // processes // steps_per_generation,
        "steps_per_generation": steps_per_generation,
        "num_generations": 8,
        "max_completion_length": 56,
        "max_steps": ROLLOUTS * steps_per_generation,
        "learning_rate": 3e-3 if lora else 1e-4,
    }
    adapter = LoraConfig(r=4, target_modules=["q_proj", "v_proj"]) if lora else None
    return make_trainer(
        MODEL,
        CheckedTrainer,
        reward_funcs=math_reward,
        train_dataset=load_dataset("json", data_files="recipes/quickstart/train.jsonl", split="train"),
        trainer_options={"processing_class": None, "peft_config": adapter},  # the model's own tokenizer
        **{**options, **changes},
    )


def assert_agree(checks: list[dict]) -> None:
    """Also after the weights were updated: an engine that kept the old ones would sample from another policy."""
    assert len(checks) == ROLLOUTS
    for check in checks:
        assert check["sampling"] < 1e-4
        assert check["coefficients"] < 1e-4
        assert check["varied"] > 0.03
    assert checks[0]["moved"] < 1e-5
    for check in checks[1:]:
        assert check["moved"] > 0.05
