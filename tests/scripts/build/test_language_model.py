"""SmolLM2-135M-Instruct as `make language-model` builds it, and the package on it."""

import pytest
from datasets import load_dataset

from scripts.build import language_model
from scripts.studies.tasks.language import FOLDER

from ...trainers import Compared, logged


def digits(completions, **columns) -> list[float]:
    """The sum of all digits: answers to one question seldom have the same."""
    return [float(sum(map(int, filter(str.isdigit, answer[-1]["content"])))) for answer in completions]


@pytest.mark.slow
def test_coefficients_are_the_oracle_s_and_training_learns(make_trainer):
    try:
        language_model.main()
    except SystemExit as error:
        pytest.skip(str(error))
    trainer = make_trainer(
        str(language_model.MODEL),
        trainer_class=Compared,
        reward_funcs=digits,
        train_dataset=load_dataset("json", data_files=str(FOLDER / "sums_train.jsonl"), split="train"),
        trainer_options={"processing_class": None},
        max_completion_length=20,
        learning_rate=1e-5,
    )
    before = trainer.model.model.layers[15].mlp.down_proj.weight.detach().clone()
    trainer.train()
    assert len(trainer.rollouts) == 2
    assert min(logged(trainer, "credit/coefficient_std")) > 0.05
    assert not trainer.model.model.layers[15].mlp.down_proj.weight.equal(before)
