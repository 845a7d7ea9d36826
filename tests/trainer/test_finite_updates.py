"""A loss that is not finite costs its own update, not the run. tests/distributed has weights that are not finite."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils import parameters_to_vector
from transformers import TrainerCallback

from delta_trl import DeltaGRPOTrainer

from ..trainers import logged


class Broken(DeltaGRPOTrainer):
    """Whose loss is NaN at the second optimiser step; from the fourth one on, gradients have an infinite norm."""

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        factors = {0: 1.0, 1: torch.nan, 2: 1.0}
        return loss * factors.get(self.state.global_step, 1e38)


@pytest.mark.parametrize("options", [{"gradient_accumulation_steps": 2}, {"max_grad_norm": 0.0}], ids=str)
def test_an_update_that_is_not_finite_is_skipped(make_trainer, tmp_path, caplog, options):
    """A run that has broken ends with the weights from before. An update that was skipped earlier does not count."""
    trainer = make_trainer(trainer_class=Broken, max_steps=9, save_strategy="steps", save_steps=3, **options)
    after_steps = []
    get_rate = trainer._get_learning_rate

    def get_rate_after_a_step():
        after_steps.append(parameters_to_vector(trainer.model.parameters()))
        return get_rate()

    trainer._get_learning_rate = get_rate_after_a_step
    with pytest.raises(FloatingPointError, match=r"up to step 8.*checkpoint-7"):
        trainer.train()
    first, second, third, *_ = after_steps
    assert torch.equal(first, second)
    assert not torch.equal(second, third)
    assert logged(trainer, "skipped_updates") == [0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    assert "Step 2" in caplog.text
    last = Path(tmp_path, "run", "checkpoint-7", "model.safetensors")
    for name, tensor in load_file(last).items():
        assert tensor.isfinite().all(), name


class Lost(DeltaGRPOTrainer):
    """Whose loss is always NaN."""

    def _compute_loss(self, model, inputs):
        return super()._compute_loss(model, inputs) * torch.nan


def test_each_training_counts_its_own_skipped_updates(make_trainer, monkeypatch):
    """Those of an interrupted one do not count; one that has ended so ends so again."""
    monkeypatch.setattr("delta_trl.trainer.finite_updates.PATIENCE", 2)
    trainer = make_trainer(trainer_class=Lost, max_steps=1)
    trainer.train()
    trainer.args.max_steps = 3
    for _ in range(2):
        with pytest.raises(FloatingPointError, match="up to step 2"):
            trainer.train()


def test_weights_of_which_one_is_not_finite_are_not_saved(make_trainer, tmp_path):
    class Breaks(TrainerCallback):
        def on_step_end(self, *args, model, **kwargs):
            smallest = min(model.parameters(), key=torch.numel)
            smallest.data[-1] = torch.inf

    trainer = make_trainer(max_steps=1, save_strategy="steps", save_steps=1)
    trainer.add_callback(Breaks())
    with pytest.raises(FloatingPointError, match="weights are not finite"):
        trainer.train()
    assert not list(Path(tmp_path, "run").glob("checkpoint-*"))
