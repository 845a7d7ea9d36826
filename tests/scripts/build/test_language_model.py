"""SmolLM2-135M-Instruct as `make language-model` builds it, and the package on it."""

import json

import pytest
import torch
from datasets import load_dataset

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.cli import main
from delta_trl.report.run import read_run
from scripts.build import language_model
from scripts.studies.tasks.language import FOLDER

from ...trainers import expected_coefficients, logged


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


def test_coefficients_are_the_oracle_s_and_training_learns(model, tmp_path, monkeypatch):
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
    trainer = DeltaGRPOTrainer(model, digits, args, data)
    differences = []
    generate = trainer._generate_and_score_completions

    def compared(inputs):
        batch = generate(inputs)
        expected = expected_coefficients(trainer.model, batch)
        assert expected[batch["completion_mask"].bool()].std() > 0.05
        differences.append((batch["token_coefficients"] - expected).abs().max().item())
        return batch

    monkeypatch.setattr(trainer, "_generate_and_score_completions", compared)
    before = trainer.model.model.layers[15].mlp.down_proj.weight.detach().clone()
    trainer.train()
    assert len(differences) == 2
    assert max(differences) < 1e-4
    assert all(norm > 0 for norm in logged(trainer, "grad_norm"))
    assert not torch.equal(trainer.model.model.layers[15].mlp.down_proj.weight, before)


def test_explain(model, tmp_path):
    row = json.loads((FOLDER / "sums_train.jsonl").read_text().splitlines()[0])
    answers = {f"Answer: {row['solution']}": 1.0, "Answer: 1": 0.0}
    rows = [{"prompt": row["prompt"], "completion": text, "reward": reward} for text, reward in answers.items()]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    folder = tmp_path / "explained"
    options = ["--model_name_or_path", model, "--data", str(tmp_path / "data.jsonl"), "--output_dir", str(folder)]
    assert main(["explain", *options]) == 0
    [group] = read_run(folder).groups
    assert {"".join(completion.tokens): completion.reward for completion in group.completions} == answers
    assert all(completion.coefficients.std() > 0 for completion in group.completions)
