import os

import pytest


# Before torch is imported, and for the processes that tests start: on busy cores, threads that wait for each other
# make models as small as these many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from trl import GRPOTrainer

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer

from .corpus import tiny


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def make_trainer(tmp_path):
    """A trainer of a tiny model on CPU. Draws from the global generator: train one before making the next."""

    def make(
        model=None,
        trainer_class=DeltaGRPOTrainer,
        config_class=DeltaGRPOConfig,
        reward_funcs=tiny.reward_letters,
        train_dataset=None,
        trainer_options=None,
        **options,
    ) -> GRPOTrainer:
        torch.manual_seed(0)
        defaults = {
            "output_dir": str(tmp_path / "run"),
            **tiny.OPTIONS,
            "max_steps": 2,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
        }
        return trainer_class(
            model if model is not None else tiny.model(),
            reward_funcs,
            config_class(**{**defaults, **options}),
            tiny.dataset() if train_dataset is None else train_dataset,
            **{"processing_class": tiny.tokenizer(), **(trainer_options or {})},
        )

    return make


@pytest.fixture
def rollout():
    """One rollout batch of a trainer, before it is shuffled and split."""

    def generate(trainer) -> dict:
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
        return trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))

    return generate
