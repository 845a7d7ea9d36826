"""
Ratios of the policy to itself: log-probabilities in the loss less those that were scored, where no update was made.

SmolLM2-135M-Instruct samples its own completions, half of them sums of some 25 tokens, half stories as long as
allowed. With a learning rate of 0, every loss sees the policy that was scored, so exact arithmetic gives ratios of 1.
"""

import gc
import tempfile
from itertools import permutations
from os.path import relpath
from pathlib import Path

import torch
import transformers
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer

from ...benchmarks.overhead import recorded_log_ratios, spread_of_ratios
from ...studies.start_models import folder_of
from ...studies.tasks import TASKS, language, make_problems
from .stage import Stage


DTYPES = {"bfloat16 autocast of float32": torch.float32, "bfloat16": torch.bfloat16}
CLASSES = {"GRPOTrainer": GRPOTrainer, "DeltaGRPOTrainer": DeltaGRPOTrainer}
SIZES = {  # by whether it is a dry run
    False: {"model": relpath(language.MODEL), "tokens": 256, "batches": 2},
    True: {"model": relpath(folder_of("arithmetic")), "tokens": 40, "batches": 1},
}


def run(stage: Stage) -> None:
    stage.settings = SIZES[stage.dry]
    if not Path(stage.settings["model"]).is_dir():
        stage.leave_out(f"{stage.settings['model']} is not there: `make language-model`, or README.md")
        return
    transformers.logging.set_verbosity_error()
    lines = ["| weights | trainer | tokens | exactly 1 | outside .9 to 1.1 | largest log-ratio |", "|---" * 6 + "|"]
    for precision, dtype in DTYPES.items():
        for name, cls in CLASSES.items():
            found = measure(cls, dtype, prompts(stage.dry), **stage.settings)
            stage.results[f"{precision}, {name}"] = found
            cells = [
                precision,
                name,
                f"{found['tokens']}",
                f"{found['exact']:.4f}",
                f"{found['outside']:.4f}",
                f"{found['largest_log']:.2g}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
            stage.text = "\n".join(lines)
            stage.save()


def prompts(dry: bool) -> list:
    if dry:
        return [row["prompt"] for row in make_problems(TASKS["arithmetic"])[0][:32]]
    rows = language.make_rows(language.TASKS["sums"])
    prompts = []
    for row, (a, b) in zip(rows[:16], permutations(language.FRUITS, 2), strict=False):
        story = {"role": "user", "content": f"Tell me a story about a {a} and a {b}."}
        prompts += [row["prompt"], [story]]
    return prompts


def measure(cls: type[GRPOTrainer], dtype: torch.dtype, prompts: list, model: str, tokens: int, batches: int) -> dict:
    """A training of `batches` rollout batches of 64 completions."""
    on_gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        training_args = DeltaGRPOConfig(
            output_dir=folder,
            learning_rate=0.0,
            per_device_train_batch_size=8,
            steps_per_generation=8,
            gradient_accumulation_steps=4,  # two optimiser steps: TRL scores log-probabilities first
            num_generations=8,
            max_completion_length=tokens,
            max_steps=2 * batches,
            bf16=True,
            activation_checkpointing=on_gpu,
            use_cpu=not on_gpu,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = cls(
            AutoModelForCausalLM.from_pretrained(model, dtype=dtype),
            lambda completions, **columns: [float(i % 2) for i in range(len(completions))],
            training_args,
            Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
            processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        )
        trainer.remove_callback(PrinterCallback)
        with recorded_log_ratios(trainer, 1) as log_ratios:
            trainer.train()
    ratios = torch.cat(log_ratios)
    del trainer
    gc.collect()
    exact = (ratios == 0).float().mean().item()
    return {"tokens": len(ratios), "exact": exact, **spread_of_ratios(ratios)}
