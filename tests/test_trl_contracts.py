"""
What the trainer relies on in TRL: the check of signatures, and a canary for each thing that only a run shows. If one
fails, TRL changed under us: its message says what to adapt.
"""

import inspect
from types import SimpleNamespace

import pytest
import torch
from trl import GRPOTrainer

from delta_trl import DeltaGRPOTrainer
from delta_trl.scoring.models import MULTIMODAL
from delta_trl.trainer import trl_signatures

from .corpus import tiny
from .test_layers import ROOT
from .trainers import TRL, joined, move
from .trainers import make_trainer as make


# --- signatures ---


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("_compute_loss", lambda self, inputs, model: None),
        ("train", lambda self, trial=None, resume_from_checkpoint=None: None),
        ("_generate", lambda self, prompts_and_images: None),
        ("_generate_and_score_completions", None),
    ],
)
def test_a_changed_signature_is_refused(monkeypatch, name, method):
    """Also a method that is gone."""
    if method:
        monkeypatch.setattr(GRPOTrainer, name, method)
    else:
        monkeypatch.delattr(GRPOTrainer, name)
    with pytest.raises(ImportError, match=f"GRPOTrainer.{name} takes"):
        trl_signatures.check()


def test_all_overrides_are_checked():
    classes = DeltaGRPOTrainer.__mro__
    ours = classes[: classes.index(GRPOTrainer)]
    overrides = set()
    for cls in ours:
        for name, value in vars(cls).items():
            if inspect.isfunction(value) and hasattr(GRPOTrainer, name):
                overrides.add(name)
    assert overrides <= trl_signatures.PARAMETERS.keys(), "or TRL has taken our name"


def test_the_tested_version_is_that_of_the_constraints():
    constraints = (ROOT / "constraints.txt").read_text()
    assert f"\ntrl=={trl_signatures.TESTED}." in constraints


# --- of one rollout batch ---


@pytest.fixture(scope="module")
def seen(tmp_path_factory, rollout):
    """
    What a `GRPOTrainer` scores in one rollout batch with a reference model and two optimiser steps, and in its loss:
    `trainer`, `batch`, and of each call `scored` (model, args, kwargs, output) and `states` (shape).
    """
    folder = tmp_path_factory.mktemp("seen")
    tiny.model().save_pretrained(folder / "model")  # from where TRL loads the reference model
    trainer = make(str(folder / "model"), **TRL, output_dir=str(folder / "run"), num_iterations=2, beta=0.1)
    score = trainer._get_per_token_logps_and_entropies
    scored, states = [], []

    def scoring(model, *args, **kwargs):
        compute_entropy = {"compute_entropy": True} if model is trainer.model else {}
        output = score(model, *args, **{**kwargs, **compute_entropy})
        scored.append(SimpleNamespace(model=model, args=args, kwargs=kwargs, output=output))
        return output

    def note(module, args, output):
        states.append(tuple(output.last_hidden_state.shape))

    trainer._get_per_token_logps_and_entropies = scoring
    trainer.model.base_model.register_forward_hook(note)
    batch = rollout(trainer)
    trainer._compute_loss(trainer.model, batch)
    return SimpleNamespace(trainer=trainer, batch=batch, scored=scored, states=states)


def test_the_policy_is_scored_before_the_reference(seen):
    policy, reference = seen.trainer.model, seen.trainer.ref_model
    assert [call.model for call in seen.scored] == [policy, reference, policy], (
        "DeltaGRPOTrainer._generate_and_score_completions records the first scoring call"
    )
    _, entropies, *_ = seen.scored[0].output
    assert entropies.shape == seen.batch["completion_ids"].shape, "entropies come if asked for"


def test_trl_scores_prompts_with_completions_by_position(seen):
    batch = seen.batch
    for call in seen.scored:
        ids, mask, length, *_ = call.args
        assert torch.equal(ids, joined(batch, "ids"))
        assert torch.equal(mask, joined(batch, "mask"))
        assert length == batch["completion_ids"].size(1), "scoring takes these by position"
    in_rollouts, _, in_loss = seen.scored
    assert "batch_size" in in_rollouts.kwargs
    of_batch = in_loss.kwargs.keys() - {"compute_entropy", "compute_aux_loss"}
    assert of_batch == {*MULTIMODAL}, "RolloutPolicy passes on what TRL's loss takes from a batch"
    assert not batch["prompt_mask"].all(), "left padding is tested only if prompts differ in length"


def test_old_log_probs_are_those_of_the_scoring_pass(seen, make_trainer, rollout):
    log_probs, *_ = seen.scored[0].output
    assert seen.batch["old_per_token_logps"] is log_probs, (
        "DeltaGRPOTrainer recognises the policy's own scoring pass by the identity of its log-probabilities"
    )
    assert "old_per_token_logps" not in rollout(make_trainer(**TRL))


def test_the_backbone_s_hook_fires_in_the_scoring_pass(seen):
    width = seen.batch["prompt_ids"].size(1) + seen.batch["completion_ids"].size(1)
    assert seen.states[-2:] == [(8, width, 32)] * 2, "the fused LM head no longer calls `model.base_model`"


# --- the rest ---


class Generated(GRPOTrainer):
    def _generate(self, prompts):
        self.generated = super()._generate(prompts)
        return self.generated


def test_generation_returns_token_ids_first_and_images_before_those_of_tools(make_trainer, rollout):
    """Real rows confirm the layout before they are scored, unless they have images."""
    trainer = make_trainer(**{**TRL, "trainer_class": Generated})
    batch = rollout(trainer)
    prompts, completions, *_, images, of_tools = trainer.generated
    for name, rows in (("prompt", prompts), ("completion", completions)):
        valid = batch[f"{name}_mask"].bool()
        padded = batch[f"{name}_ids"]
        assert [ids[is_token].tolist() for ids, is_token in zip(padded, valid, strict=True)] == rows
    assert images is None
    assert of_tools == []


def test_every_loss_weighs_tokens_by_their_advantages(make_trainer, rollout):
    """The losses of two batches of advantages (B, T) sum to that of their sum; which token has which matters."""
    trainer = make_trainer(**TRL, num_iterations=2, delta=10.0)
    batch = rollout(trainer)
    move(trainer.model)
    parameters = list(trainer.model.parameters())
    shape, advantages = batch["completion_ids"].shape, batch["advantages"][:, None]

    def gradient(weights):
        weighted = {**batch, "advantages": advantages * weights}
        loss = trainer._compute_loss(trainer.model, weighted)
        of_each = torch.autograd.grad(loss, parameters)
        return torch.cat([of_one.flatten() for of_one in of_each])

    some = torch.rand(shape)
    rising = torch.linspace(0.2, 1.2, shape[1]).expand(shape)
    losses = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo")
    levels = [(loss_type, "token") for loss_type in losses]
    levels += [("cispo", "sequence"), ("vespo", "sequence")]
    for trainer.loss_type, trainer.importance_sampling_level in levels:
        of_rising = gradient(rising)
        whole = gradient(some + rising)
        torch.testing.assert_close(gradient(some) + of_rising, whole, rtol=1e-3, atol=1e-6)
        of_falling = gradient(rising.flip(1))
        assert (of_rising - of_falling).norm() > 0.05 * of_rising.norm()


def test_the_sampler_repeats_each_prompt_and_each_batch(make_trainer):
    """`PromptOrder` takes the first of each."""
    trainer = make_trainer(**TRL, per_device_train_batch_size=4, steps_per_generation=2, num_iterations=3)
    sampled = list(trainer._get_train_sampler())
    rows = torch.tensor(sampled).view(8, 6, 2, 4)  # batches, repetitions, prompts, rows
    firsts = rows[:, :1, :, :1]
    assert torch.equal(rows, firsts.expand_as(rows))
    assert sorted(firsts.flatten().tolist()) == list(range(16))
