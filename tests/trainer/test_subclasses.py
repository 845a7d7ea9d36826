"""Subclasses that score, change a batch, or compute a loss in their own way do with ours what they do with TRL's."""

import pytest
import torch
from transformers import Lfm2Config, OPTConfig
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from delta_trl import DeltaGRPOTrainer

from ..corpus import tiny
from ..trainers import credit, expected_coefficients, logged, plain_forward


OPTIONS = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "steps_per_generation": 4,
    "num_iterations": 2,
    "max_completion_length": 24,
    "max_steps": 2,
}


def ragged(prompts, trainer) -> dict:
    """Completions of 1 to 19 tokens."""
    ids = [[2 + (7 * i + t * t) % 30 for t in range(1 + 3 * (i % 7))] for i in range(len(prompts))]
    return {"prompt_ids": trainer.processing_class(prompts)["input_ids"], "completion_ids": ids, "logprobs": None}


ROLLOUT = {"trainer_options": {"rollout_func": ragged}}


def sharp(config=None):
    """A random model whose predictions depend on what it attends to."""
    torch.manual_seed(5)
    model = tiny.model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) if parameter.ndim == 1 else 4 * parameter
    return model


class ScoresItself:
    """As one would for a model that takes one more argument."""

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, *args, **options):
        parts = [
            plain_forward(
                model,
                {
                    "prompt_ids": ids[:, :-logits_to_keep],
                    "prompt_mask": mask[:, :-logits_to_keep],
                    "completion_ids": ids[:, -logits_to_keep:],
                    "completion_mask": mask[:, -logits_to_keep:],
                },
            )[1]
            for ids, mask in zip(input_ids.split(3), attention_mask.split(3), strict=True)
        ]
        return torch.cat(parts), torch.zeros(len(input_ids), logits_to_keep), None


class ScoresInParts:
    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, *args, **options):
        score = super()._get_per_token_logps_and_entropies
        halves = zip(input_ids.chunk(2), attention_mask.chunk(2), strict=True)
        log_probs, entropies, _ = zip(*(score(model, *half, *args, **options) for half in halves), strict=True)
        return torch.cat(log_probs), torch.cat(entropies) if options.get("compute_entropy") else None, None


@pytest.mark.parametrize("num_iterations", [2, 1], ids=["recorded", "scored again"])
def test_a_scoring_method_of_its_own(make_trainer, num_iterations):
    kind = type("Own", (ScoresItself, DeltaGRPOTrainer), {})
    trainer = make_trainer(sharp(), kind, **ROLLOUT, **{**OPTIONS, "num_iterations": num_iterations})
    batch = trainer._generate_and_score_completions(list(trainer.train_dataset)[:8])
    expected = expected_coefficients(trainer.model, batch)
    assert expected[batch["completion_mask"].bool()].std() > 0.05
    torch.testing.assert_close(batch["token_coefficients"], expected, atol=1e-4, rtol=0)


def test_scoring_in_parts_is_refused(make_trainer):
    """The states of a part cannot be told from those of another."""
    kind = type("Parts", (ScoresInParts, DeltaGRPOTrainer), {})
    trainer = make_trainer(sharp(), kind, **ROLLOUT, **OPTIONS)
    with pytest.raises(RuntimeError, match="scores them in parts: give all rows to the base class in one call"):
        trainer.train()


class LeavesRowsOut:
    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return {
            name: value[::2] if isinstance(value, torch.Tensor) and value.ndim else value
            for name, value in batch.items()
        }


class RebuildsTheBatch:
    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages", "num_items_in_batch")
        return {name: batch[name] for name in (*names, "old_per_token_logps")}


class ScoresMore:
    """Twice as many rows as the rollout batch has, before and after it was scored."""

    def score(self, rows):
        ids = torch.arange(rows * 12).view(rows, 12) % 30 + 2
        with torch.no_grad():
            scored = self._get_per_token_logps_and_entropies(self.model, ids, torch.ones_like(ids), 6, batch_size=2)
        assert scored[0].shape == (rows, 6)

    def _generate_and_score_completions(self, inputs):
        self.score(5)
        batch = super()._generate_and_score_completions(inputs)
        self.score(2 * len(inputs))
        return batch


@pytest.mark.parametrize("mixin", [LeavesRowsOut, RebuildsTheBatch, ScoresMore])
def test_trains_as_on_trls_trainer(make_trainer, mixin):
    values = []
    for base, kind in (
        (DeltaGRPOTrainer, {"token_credit": "none", "epsilon_high": 0.2}),
        (GRPOTrainer, {"config_class": GRPOConfig}),
    ):
        trainer = make_trainer(sharp(), type("Mixed", (mixin, base), {}), **kind, **ROLLOUT, **OPTIONS)
        trainer.train()
        values.append([*logged(trainer, "loss"), *logged(trainer, "grad_norm")])
    assert values[0] == pytest.approx(values[1], abs=1e-5)


class CarriesLists(DeltaGRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return {**batch, "texts": [str(row.tolist()) for row in batch["completion_ids"]]}


def test_lists_stay_with_their_rows(make_trainer):
    trainer = make_trainer(sharp(), CarriesLists, token_credit="none", **ROLLOUT, **OPTIONS)
    trainer.train()
    for batch in trainer._buffered_inputs:
        assert batch["texts"] == [str(row.tolist()) for row in batch["completion_ids"]]


SMALL = {"vocab_size": tiny.SIZES["vocab_size"], "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}


@pytest.mark.parametrize(
    "config",
    [
        OPTConfig(
            **SMALL, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, word_embed_proj_dim=32
        ),
        Lfm2Config(**{**tiny.SIZES, "bos_token_id": 1}, conv_bias=True, layer_types=["conv", "full_attention"]),
    ],
    ids=["takes no positions", "counts padding"],
)
def test_a_model_of_another_kind_is_left_as_it_is(make_trainer, config):
    """A teacher, scored with TRL's method."""
    teacher = sharp(config).eval()
    add_fused_lm_head(teacher, outputs=("log_probs", "entropy"))
    ids = torch.randint(2, 38, (4, 28), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[:, :12] = mask[0, :16] = mask[1, 24:] = 0
    scores = []
    for kind in ({}, {"trainer_class": GRPOTrainer, "config_class": GRPOConfig}):
        trainer = make_trainer(**kind)
        trainer.model.train()
        if kind == {}:
            trainer._widest = trainer._probe()
        with torch.no_grad():
            scores.append(trainer._get_per_token_logps_and_entropies(teacher, ids, mask, 8)[0][mask[:, 20:] == 1])
    torch.testing.assert_close(*scores, atol=2e-5, rtol=0)


def test_a_model_that_cannot_be_probed_is_not_trimmed(make_trainer, caplog):
    def look(module, args, inputs):
        if inputs["input_ids"].size(1) == 16:  # the width of the probe
            raise TypeError("an image is missing")

    model = tiny.model()
    model.base_model.register_forward_pre_hook(look, with_kwargs=True)
    make_trainer(model).train()
    assert "Qwen3ForCausalLM cannot score plain rows of tokens (TypeError: an image is missing)" in caplog.text


class RewardsItself:
    def _calculate_rewards(self, inputs, prompts, completions, *args, **kwargs):
        return torch.arange(len(completions))[:, None] % 4 * 1.0


class AsksTRLForTheLoss:
    def _compute_loss(self, model, inputs):
        return GRPOTrainer._compute_loss(self, model, inputs)


def equal(completions, **kwargs):
    return [100.0] * len(completions)


def test_rewards_of_its_own_and_a_loss_that_asks_trl(make_trainer):
    """The reward functions see no difference. With coefficients of 1, the training is that of TRL's trainer."""
    norms = []
    for bases, options in (
        ((AsksTRLForTheLoss, RewardsItself, DeltaGRPOTrainer), credit(lambda_min=1.0, lambda_max=1.0)),
        ((RewardsItself, GRPOTrainer), {"config_class": GRPOConfig, "epsilon_high": 0.28}),
        ((AsksTRLForTheLoss, RewardsItself, DeltaGRPOTrainer), credit(lambda_min=0.5, lambda_max=2.0)),
        ((RewardsItself, DeltaGRPOTrainer), credit(lambda_min=0.5, lambda_max=2.0)),
    ):
        kind = type("Own", bases, {})
        trainer = make_trainer(None, kind, reward_funcs=equal, **ROLLOUT, **OPTIONS, **options)
        trainer.train()
        norms.append(logged(trainer, "grad_norm"))
    assert norms[0] == pytest.approx(norms[1], rel=1e-3) != norms[2]
    assert norms[2] == norms[3]
    assert min(norms[1]) > 0.01


class OfTokens(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return batch | {
            "advantages": batch["advantages"][:, None] * (1 + torch.arange(batch["completion_ids"].size(1)))
        }


def test_advantages_of_tokens_are_weighted(make_trainer, rollout):
    kind = type("Own", (DeltaGRPOTrainer, OfTokens), {})
    ours, plain = (
        rollout(make_trainer(trainer_class=each, **credit("side_weights"))) for each in (kind, DeltaGRPOTrainer)
    )
    expected = plain["advantages"] * (1 + torch.arange(plain["advantages"].size(1)))
    torch.testing.assert_close(ours["advantages"], expected)


class AddsAColumn:
    def _generate_and_score_completions(self, inputs):
        return super()._generate_and_score_completions([{**row, "wanted": 4} for row in inputs])


class RepeatsRows:
    def _get_train_sampler(self, dataset=None):
        return [i for _ in range(4) for i in range(2) for _ in range(4)] * 8


def reward_wanted(completions, wanted, **kwargs):
    return [float(len(text) < size) for text, size in zip(completions, wanted, strict=True)]


def test_columns_and_rows_of_its_own(make_trainer, caplog):
    kind = type("Own", (AddsAColumn, DeltaGRPOTrainer), {})
    make_trainer(None, kind, reward_funcs=[reward_wanted]).train()
    make_trainer(None, type("Own", (RepeatsRows, DeltaGRPOTrainer), {}), train_dataset=tiny.dataset(2), **OPTIONS)
    assert not caplog.text
