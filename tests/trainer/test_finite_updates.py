"""A loss that is not finite costs its own update, not the run."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils import parameters_to_vector

from delta_trl import DeltaGRPOTrainer

from ..trainers import logged


def broken_at(*steps) -> type:
    """A trainer whose loss is NaN at these optimiser steps."""

    class Broken(DeltaGRPOTrainer):
        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            return loss * (torch.nan if self.state.global_step + 1 in steps else 1.0)

    return Broken


@pytest.mark.parametrize("options", [{"gradient_accumulation_steps": 2}, {"max_grad_norm": 0.0}], ids=str)
def test_an_update_that_is_not_finite_is_skipped(make_trainer, caplog, options):
    trainer = make_trainer(trainer_class=broken_at(2), max_steps=3, **options)
    seen = []
    rate = trainer._get_learning_rate
    trainer._get_learning_rate = lambda: seen.append(parameters_to_vector(trainer.model.parameters())) or rate()
    trainer.train()
    assert torch.equal(seen[0], seen[1])  # after the first step and after the second
    assert not torch.equal(seen[1], seen[2])
    assert seen[2].isfinite().all()
    assert logged(trainer, "skipped_updates") == [0.0, 1.0, 0.0]
    assert "Step 2" in caplog.text


def test_a_run_that_has_broken_ends_with_the_weights_from_before(make_trainer, tmp_path):
    options = {"max_steps": 9, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}
    with pytest.raises(FloatingPointError, match=r"up to step 8.*checkpoint-7"):
        # one that was skipped before does not count: there was an update since
        make_trainer(trainer_class=broken_at(2, *range(4, 10)), **options).train()
    last = Path(tmp_path, "run", "checkpoint-7", "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in load_file(last).values())


def test_weights_that_are_not_finite_are_not_saved(make_trainer, tmp_path):
    class Diverges(DeltaGRPOTrainer):
        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            if self.state.global_step == 2:
                with torch.no_grad():
                    next(iter(model.parameters())).fill_(torch.inf)
            return loss

    trainer = make_trainer(trainer_class=Diverges, max_steps=4, save_strategy="steps", save_steps=1)
    with pytest.raises(FloatingPointError, match="Step 3"):
        trainer.train()
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]
