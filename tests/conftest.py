import gc
import importlib.metadata
import os
import tempfile
from functools import cache, partial

import pytest
from hypothesis import settings


# A deadline would fail on busy cores
settings.register_profile("quick", max_examples=30, deadline=None)
settings.load_profile("quick")
# Before torch is imported, and for the processes that tests start: on busy cores, threads that wait for each other
# make models as small as these many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
TRACKIO = tempfile.TemporaryDirectory()
os.environ["TRACKIO_DIR"] = TRACKIO.name  # which it reads when it is imported
# accelerate asks in every optimiser step which packages there are, and reads a file for each
importlib.metadata.metadata = cache(importlib.metadata.metadata)


def pytest_collection_finish():
    """Trainer collects garbage before each training, which takes .3 s if it looks at all that was imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seed():
    import torch  # not above: the process that hands out the tests does without

    torch.manual_seed(0)


@pytest.fixture
def make_trainer(tmp_path):
    """A trainer of a tiny model on CPU. Draws from the global generator: train one before making the next."""

    from .trainers import make_trainer

    return partial(make_trainer, output_dir=str(tmp_path / "run"))


@pytest.fixture(scope="session")
def rollout():
    """One rollout batch of a trainer, before it is shuffled and split."""

    def generate(trainer) -> dict:
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
        return trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))

    return generate
