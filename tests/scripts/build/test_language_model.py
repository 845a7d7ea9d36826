"""SmolLM2-135M-Instruct as `make language-model` builds it, and the package on it."""

import pytest
import torch
from datasets import load_dataset

from delta_trl import DeltaGRPOConfig
from scripts.build import language_model
from scripts.studies.tasks.language import FOLDER

from ...trainers import Compared, logged


pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def model() -> str:
    try:
        language_model.main()
    except SystemExit as error:
        pytest.skip(str(error))
    return str(language_model.MODEL)


def digits(completions, **columns) -> list[float]:
    """The sum of all digits: answers to one question seldom have the same."""
    return [float(sum(map(int, filter(str.isdigit, answer[-1]["content"])))) for answer in completions]


def test_coefficients_are_the_oracle_s_and_training_learns(model, tmp_path):
    args = DeltaGRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=20,
        max_steps=2,
        learning_rate=1e-5,
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
    )
    data = load_dataset("json", data_files=str(FOLDER / "sums_train.jsonl"), split="train")
    trainer = Compared(model, digits, args, data)
    before = trainer.model.model.layers[15].mlp.down_proj.weight.detach().clone()
    trainer.train()
    assert len(trainer.rollouts) == 2
    assert min(logged(trainer, "credit/coefficient_std")) > 0.05
    assert all(norm > 0 for norm in logged(trainer, "grad_norm"))
    assert not torch.equal(trainer.model.model.layers[15].mlp.down_proj.weight, before)
