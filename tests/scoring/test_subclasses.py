"""Subclasses that score in their own way or change a batch do with ours what they do with TRL's."""

from functools import partial

import pytest
import torch
from trl import GRPOTrainer

from delta_trl import DeltaGRPOTrainer
from delta_trl.credit import TokenCredit
from delta_trl.scoring.rollout import PLACE

from ..corpus import tiny
from ..trainers import RAGGED, TRL, expected_coefficients, joined, logged, plain_forward, sharp, valid_tokens


class OneMoreArgument(DeltaGRPOTrainer):
    """Of a model, as one would pass it."""

    def _get_per_token_logps_and_entropies(self, model, *args, **options):
        model = partial(model, output_attentions=False)
        return super()._get_per_token_logps_and_entropies(model, *args, **options)


class ScoresItself(DeltaGRPOTrainer):
    """Without the base class, which sees no hidden states."""

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, *args, **options):
        parts = []
        for ids, mask in zip(input_ids.split(3), attention_mask.split(3), strict=True):
            batch = {
                "prompt_ids": ids[:, :-logits_to_keep],
                "prompt_mask": mask[:, :-logits_to_keep],
                "completion_ids": ids[:, -logits_to_keep:],
                "completion_mask": mask[:, -logits_to_keep:],
            }
            _, log_probs = plain_forward(model, batch)
            parts.append(log_probs)
        log_probs = torch.cat(parts)
        return log_probs, torch.zeros_like(log_probs), None


class ScoresInParts(DeltaGRPOTrainer):
    """The states of a part cannot be told from those of another."""

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, *args, **options):
        score = super()._get_per_token_logps_and_entropies
        log_probs, entropies = [], []
        for ids, mask in zip(input_ids.chunk(2), attention_mask.chunk(2), strict=True):
            of_half, entropies_of_half, _ = score(model, ids, mask, *args, **options)
            log_probs.append(of_half)
            entropies.append(entropies_of_half)
        has_entropies = options.get("compute_entropy")
        return torch.cat(log_probs), torch.cat(entropies) if has_entropies else None, None


def test_a_scoring_method_of_its_own(make_trainer, rollout):
    trainer = make_trainer(sharp(), OneMoreArgument, **RAGGED)
    batch = rollout(trainer)
    expected = expected_coefficients(trainer.model, batch)
    assert expected[valid_tokens(batch)].std() > 0.05
    torch.testing.assert_close(batch["token_coefficients"], expected, atol=1e-4, rtol=0)


class Sharpened(DeltaGRPOTrainer):
    """Whose log-probabilities are not those of the base class."""

    def _get_per_token_logps_and_entropies(self, *args, **options):
        log_probs, *others = super()._get_per_token_logps_and_entropies(*args, **options)
        return 2 * log_probs, *others


class ReadsLogProbs(TokenCredit):
    needs_hidden_states = True

    def of_rollout(self, tokens):
        self.read = tokens.padded(tokens.log_probs)
        assert tokens.policy.forward_passes == 0  # TRL's was one
        assert tokens.hidden.shape[0] == len(tokens)


def test_a_rule_reads_the_log_probabilities_that_a_subclass_gives(make_trainer, rollout):
    rule = ReadsLogProbs()
    batch = rollout(make_trainer(sharp(), Sharpened, **RAGGED, token_credit=rule))
    valid = valid_tokens(batch)
    assert torch.equal(rule.read[valid], batch["old_per_token_logps"][valid])


@pytest.mark.parametrize("kind", [ScoresItself, ScoresInParts])
def test_a_scoring_method_that_hides_states_needs_no_credit(make_trainer, rollout, kind):
    with_credit = make_trainer(sharp(), kind, **RAGGED)
    with pytest.raises(RuntimeError, match="must give all rows to the base class in one call"):
        rollout(with_credit)
    rollout(make_trainer(sharp(), kind, token_credit="none", **RAGGED))


class LeavesRowsOut:
    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        for name, value in batch.items():
            is_per_row = isinstance(value, torch.Tensor) and value.ndim > 0
            if is_per_row:
                batch[name] = value[::2]
        return batch


class RebuildsTheBatch:
    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return {name: value for name, value in batch.items() if name != PLACE}


@pytest.mark.parametrize("mixin", [LeavesRowsOut, RebuildsTheBatch])
def test_trains_as_on_trls_trainer(make_trainer, mixin):
    without_credit = {"token_credit": "none", "epsilon_high": 0.2}
    values = []
    for base, options in ((DeltaGRPOTrainer, without_credit), (GRPOTrainer, TRL)):
        mixed = type("Mixed", (mixin, base), {})
        trainer = make_trainer(sharp(), **RAGGED, **{**options, "trainer_class": mixed})
        trainer.train()
        values.append([*logged(trainer, "loss"), *logged(trainer, "grad_norm")])
    ours, theirs = values
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_a_model_that_cannot_be_probed_is_not_trimmed(make_trainer, caplog):
    def look(module, args, inputs):
        if inputs["input_ids"].size(1) == 16:  # the width of the probe
            raise RuntimeError("an image is missing")

    model = tiny.model()
    model.base_model.register_forward_pre_hook(look, with_kwargs=True)
    make_trainer(model).train()
    assert "an image is missing" in caplog.text


class ScoresAgain(DeltaGRPOTrainer):
    """A rollout batch of which it knows all, after the trainer has scored the rows that train."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        ids, mask = joined(batch, "ids"), joined(batch, "mask")
        length = batch["completion_ids"].size(1)
        with torch.no_grad():
            log_probs, *_ = self._get_per_token_logps_and_entropies(self.model, ids, mask, length)
            _, expected = plain_forward(self.model, batch)
        valid = valid_tokens(batch)
        old_log_probs = batch["old_per_token_logps"]
        torch.testing.assert_close(log_probs[valid], expected[valid], atol=2e-5, rtol=0)
        torch.testing.assert_close(log_probs[valid], old_log_probs[valid], atol=2e-5, rtol=0)
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
