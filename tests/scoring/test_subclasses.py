"""Subclasses that score in their own way or change a batch do with ours what they do with TRL's."""

from functools import partial

import pytest
import torch
from trl import GRPOTrainer

from delta_trl import DeltaGRPOTrainer
from delta_trl.scoring.rollout import PLACE

from ..corpus import tiny
from ..trainers import RAGGED, TRL, expected_coefficients, logged, plain_forward, sharp


class OneMoreArgument(DeltaGRPOTrainer):
    """Of a model, as one would pass it."""

    def _get_per_token_logps_and_entropies(self, model, *args, **options):
        model = partial(model, output_attentions=False)
        return super()._get_per_token_logps_and_entropies(model, *args, **options)


class ScoresItself(DeltaGRPOTrainer):
    """Without the base class, which sees no hidden states."""

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, *args, **options):
        log_probs = []
        for ids, mask in zip(input_ids.split(3), attention_mask.split(3), strict=True):
            batch = {"prompt_ids": ids[:, :-logits_to_keep], "prompt_mask": mask[:, :-logits_to_keep]}
            batch |= {"completion_ids": ids[:, -logits_to_keep:], "completion_mask": mask[:, -logits_to_keep:]}
            log_probs.append(plain_forward(model, batch)[1])
        return torch.cat(log_probs), torch.zeros(len(input_ids), logits_to_keep), None


class ScoresInParts(DeltaGRPOTrainer):
    """The states of a part cannot be told from those of another."""

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, *args, **options):
        score = super()._get_per_token_logps_and_entropies
        halves = zip(input_ids.chunk(2), attention_mask.chunk(2), strict=True)
        log_probs, entropies, _ = zip(*(score(model, *half, *args, **options) for half in halves), strict=True)
        return torch.cat(log_probs), torch.cat(entropies) if options.get("compute_entropy") else None, None


def test_a_scoring_method_of_its_own(make_trainer, rollout):
    trainer = make_trainer(sharp(), OneMoreArgument, **RAGGED)
    batch = rollout(trainer)
    expected = expected_coefficients(trainer.model, batch)
    assert expected[batch["completion_mask"].bool()].std() > 0.05
    torch.testing.assert_close(batch["token_coefficients"], expected, atol=1e-4, rtol=0)
    for kind in (ScoresItself, ScoresInParts):
        with pytest.raises(RuntimeError, match="must give all rows to the base class in one call"):
            rollout(make_trainer(sharp(), kind, **RAGGED))
        rollout(make_trainer(sharp(), kind, token_credit="none", **RAGGED))


class LeavesRowsOut:
    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        per_row = {name for name, value in batch.items() if isinstance(value, torch.Tensor) and value.ndim}
        return {name: value[::2] if name in per_row else value for name, value in batch.items()}


class RebuildsTheBatch:
    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return {name: value for name, value in batch.items() if name != PLACE}


@pytest.mark.parametrize("mixin", [LeavesRowsOut, RebuildsTheBatch])
def test_trains_as_on_trls_trainer(make_trainer, mixin):
    values = []
    for base, kind in ((DeltaGRPOTrainer, {"token_credit": "none", "epsilon_high": 0.2}), (GRPOTrainer, TRL)):
        trainer = make_trainer(sharp(), **RAGGED, **{**kind, "trainer_class": type("Mixed", (mixin, base), {})})
        trainer.train()
        values.append([*logged(trainer, "loss"), *logged(trainer, "grad_norm")])
    assert values[0] == pytest.approx(values[1], abs=1e-5)


def test_a_model_that_cannot_be_probed_is_not_trimmed(make_trainer, caplog):
    def look(module, args, inputs):
        if inputs["input_ids"].size(1) == 16:  # the width of the probe
            raise TypeError("an image is missing")

    model = tiny.model()
    model.base_model.register_forward_pre_hook(look, with_kwargs=True)
    make_trainer(model).train()
    assert "an image is missing" in caplog.text


class ScoresAgain(DeltaGRPOTrainer):
    """A rollout batch of which it knows all, after the trainer has scored the rows that train."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        length = batch["completion_ids"].size(1)
        with torch.no_grad():
            log_probs, *_ = self._get_per_token_logps_and_entropies(self.model, ids, mask, length)
            expected = plain_forward(self.model, batch)[1]
        valid = batch["completion_mask"].bool()
        torch.testing.assert_close(log_probs[valid], expected[valid], atol=2e-5, rtol=0)
        torch.testing.assert_close(log_probs[valid], batch["old_per_token_logps"][valid], atol=2e-5, rtol=0)
        return batch


def test_a_batch_that_is_scored_again_keeps_its_rows_apart(make_trainer):
    make_trainer(sharp(), ScoresAgain, **RAGGED, max_steps=2).train()


@pytest.mark.parametrize("method", ["_calculate_rewards", "_compute_loss"])
def test_after_an_error_nothing_is_said_of_the_next_scoring_call(make_trainer, monkeypatch, method):
    """As where a notebook goes on after one, with another batch."""

    def fails(*args, **kwargs):
        raise KeyError("busy")

    trainer = make_trainer(sharp(), **RAGGED)
    before = trainer.scoring_call
    monkeypatch.setattr(GRPOTrainer, method, fails)
    with pytest.raises(KeyError, match="busy"):
        trainer.train()
    assert trainer.scoring_call is before
