"""
What the trainer relies on in TRL: the check of signatures, and a canary for each thing that only a run shows. If one
fails, TRL changed under us: its message says what to adapt.
"""

import functools
import inspect

import pytest
import torch
from transformers import Trainer
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import prepare_fsdp

from delta_trl import DeltaGRPOTrainer
from delta_trl.trainer import trl_signatures
from delta_trl.trainer.scoring import MULTIMODAL

from .corpus import tiny
from .test_layers import ROOT
from .trainers import response_advantages


# Private attributes that ours read or replace
ATTRIBUTES = """
    _buffered_inputs _entropy_bonus_enabled _is_vlm _last_world_entropy _logs _metrics _pending_extra_logs _step
    _tokenizer
""".split()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_compute_loss", "self, model, batch"),
        ("_compute_loss", "self, model, inputs, scale=1"),
        ("train", "self, trial=None, resume_from_checkpoint=None"),
        ("_generate_and_score_completions", None),
    ],
    ids=["renamed", "one more, which ours would drop", "in another order", "gone"],
)
def test_a_changed_signature_is_refused(monkeypatch, name, parameters):
    if parameters is None:
        monkeypatch.delattr(GRPOTrainer, name)
    else:
        changed = functools.wraps(getattr(GRPOTrainer, name))(lambda: None)
        changed.__signature__ = inspect.signature(eval(f"lambda {parameters}: None"))
        monkeypatch.setattr(GRPOTrainer, name, changed)
    with pytest.raises(ImportError, match=f"GRPOTrainer.{name} takes"):
        trl_signatures.check()


def test_all_overrides_are_checked():
    ours = DeltaGRPOTrainer.__mro__[: DeltaGRPOTrainer.__mro__.index(GRPOTrainer)]
    functions = {name for cls in ours for name, value in vars(cls).items() if inspect.isfunction(value)}
    assert {name for name in functions if hasattr(GRPOTrainer, name)} <= trl_signatures.PARAMETERS.keys(), (
        "or TRL has taken our name"
    )
    assert f"\ntrl=={trl_signatures.TESTED}." in (ROOT / "constraints.txt").read_text()


def test_private_attributes(make_trainer):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, use_adaptive_entropy=True)
    assert not [name for name in ATTRIBUTES if not hasattr(trainer, name)]


def test_scoring_calls(make_trainer, rollout, monkeypatch):
    """TRL's own, of a rollout batch and in the loss."""
    calls = []
    score = GRPOTrainer._get_per_token_logps_and_entropies
    monkeypatch.setattr(
        GRPOTrainer,
        "_get_per_token_logps_and_entropies",
        lambda *args, **kwargs: calls.append((args, set(kwargs))) or score(*args, **kwargs),
    )
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, num_iterations=2)
    batch = rollout(trainer)
    trainer._compute_loss(trainer.model, batch)
    assert [args[:2] for args, _ in calls] == [(trainer, trainer.model)] * 2
    for _, _, ids, mask, length in (args for args, _ in calls):
        assert torch.equal(ids, torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1))
        assert torch.equal(mask, torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1))
        assert length == batch["completion_ids"].size(1), "TrimmedPadding takes these by position"
    (_, in_rollouts), (_, in_loss) = calls
    assert "batch_size" in in_rollouts
    assert in_loss - {"compute_entropy", "compute_aux_loss"} == set(MULTIMODAL), (
        "RolloutPolicy passes on what TRL's loss takes from a batch"
    )


def test_the_policy_is_scored_before_the_reference(make_trainer, rollout, monkeypatch, tmp_path):
    """The first scoring call of a rollout batch is the policy's where there is one; entropies come if asked for."""
    models = []
    score = GRPOTrainer._get_per_token_logps_and_entropies

    def scoring(self, model, *args, **kwargs):
        output = score(self, model, *args, **{**kwargs, "compute_entropy": model is self.model})
        models.append((model, None if output[1] is None else output[1].shape))
        return output

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", scoring)
    tiny.model().save_pretrained(tmp_path / "model")  # from where TRL loads the reference model
    options = {"trainer_class": GRPOTrainer, "config_class": GRPOConfig, "num_iterations": 2, "beta": 0.1}
    trainer = make_trainer(str(tmp_path / "model"), **options)
    batch = rollout(trainer)
    assert [model for model, _ in models] == [trainer.model, trainer.ref_model], (
        "DeltaGRPOTrainer._generate_and_score_completions records the first scoring call"
    )
    assert models[0][1] == batch["completion_ids"].shape


@pytest.mark.parametrize("reward", [1.0, 0.1, 1 / 3])
def test_groups_without_contrast_have_no_advantage(make_trainer, rollout, reward):
    """Up to rounding in TRL; `DeltaGRPOTrainer` takes that away, for it would count as a side."""
    options = {"reward_funcs": lambda completions, **_: [reward] * 4 + [0.0, 1.0] * 2}
    theirs = rollout(make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, **options))["advantages"]
    ours = response_advantages(rollout(make_trainer(**options)))
    assert theirs[:4].abs().max() < 2e-3
    assert (ours[:4] == 0).all()
    torch.testing.assert_close(ours[4:], theirs[4:])
    assert ours[4:].abs().min() > 0.5


def test_the_reference_is_sharded_after_the_accelerator_is_made():
    """`FSDPPrecision` sets the precision that both models are sharded with."""
    construct = inspect.getsource(GRPOTrainer.__init__)
    assert -1 < construct.index("super().__init__(") < construct.index("prepare_fsdp(")
    assert "self.create_accelerator_and_postprocess()" in inspect.getsource(Trainer.__init__)
    assert "fsdp_plugin.mixed_precision_policy" in inspect.getsource(prepare_fsdp)


def test_generate_and_score_takes_the_rows_of_a_process(make_trainer, rollout):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    inputs = []
    generate = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda rows: inputs.append(rows) or generate(rows)
    batch = rollout(trainer)
    assert len(inputs[0]) == len(batch["advantages"]) == 8


def test_calculate_rewards_returns_those_of_all_functions(make_trainer, rollout):
    """Unweighted, of all rows, before they become advantages;"""
    trainer = make_trainer(
        trainer_class=GRPOTrainer,
        config_class=GRPOConfig,
        reward_funcs=[tiny.reward_letters, lambda completions, **_: [0.5] * len(completions)],
    )
    returned = []
    calculate = trainer._calculate_rewards
    trainer._calculate_rewards = lambda *args: returned.append(calculate(*args)) or returned[-1]
    rollout(trainer)
    assert returned[0].shape == (8, 2)
    assert (returned[0][:, 1] == 0.5).all()


def test_the_loss_scores_before_it_reads_the_advantages(make_trainer, rollout, monkeypatch):
    """Credit of a micro-batch is made of its own log-probabilities, in time for its advantages."""
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    batch = rollout(trainer)
    expected = trainer._compute_loss(trainer.model, {**batch, "advantages": 2 * batch["advantages"]})
    inputs, calls = dict(batch), []
    score = trainer._get_per_token_logps_and_entropies

    def scoring(*args, **kwargs):
        calls.append(kwargs.get("compute_entropy"))
        inputs["advantages"] = 2 * batch["advantages"]
        return score(*args, **kwargs)

    monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", scoring)
    assert torch.equal(trainer._compute_loss(trainer.model, inputs), expected)
    assert calls == [True], "one scoring call, with entropies"


def test_old_log_probs(make_trainer, rollout, monkeypatch):
    returned = []
    score = GRPOTrainer._get_per_token_logps_and_entropies
    monkeypatch.setattr(
        GRPOTrainer,
        "_get_per_token_logps_and_entropies",
        lambda *a, **k: returned.append(score(*a, **k)) or returned[-1],
    )
    grpo = {"trainer_class": GRPOTrainer, "config_class": GRPOConfig}
    batch = rollout(make_trainer(**grpo, num_iterations=2))
    assert batch["advantages"].shape == (8,)
    assert batch["old_per_token_logps"] is returned[0][0], (
        "DeltaGRPOTrainer recognises the policy's own scoring pass by the identity of its log-probabilities"
    )
    assert "old_per_token_logps" not in rollout(make_trainer(**grpo))


def test_backbone_hook_fires_in_the_scoring_pass(make_trainer, rollout):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, num_iterations=2)
    shapes = []
    batch_size, width = 8, []
    trainer.model.base_model.register_forward_hook(
        lambda module, args, output: shapes.append(tuple(output.last_hidden_state.shape))
    )
    batch = rollout(trainer)
    width = batch["prompt_ids"].size(1) + batch["completion_ids"].size(1)
    assert shapes[-1] == (batch_size, width, 32), "the fused LM head no longer calls `model.base_model`"


def test_compute_loss_takes_an_advantage_per_token(make_trainer, rollout):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    batch = rollout(trainer)
    per_sequence = trainer._compute_loss(trainer.model, batch)
    per_token = batch["advantages"][:, None].expand_as(batch["completion_ids"])
    assert torch.equal(trainer._compute_loss(trainer.model, {**batch, "advantages": per_token}), per_sequence)


def test_extra_batch_entries_are_shuffled_and_split_along(make_trainer):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, steps_per_generation=2)
    generate = trainer._generate_and_score_completions

    def with_extra(inputs):
        batch = generate(inputs)
        return {**batch, "token_coefficients": batch["completion_ids"].float()}

    trainer._generate_and_score_completions = with_extra
    trainer.model.train()
    slices = []
    for _ in range(2):
        slices.append(trainer._prepare_inputs(next(iter(trainer.get_train_dataloader()))))
        trainer._step += 1
    for piece in slices:
        assert len(piece["completion_ids"]) == 8
        assert torch.equal(piece["token_coefficients"], piece["completion_ids"].float())


def test_defaults_we_inherit():
    config = GRPOConfig("unused", use_cpu=True, bf16=False)
    assert (config.loss_type, config.epsilon, config.beta) == ("dapo", 0.2, 0.0)


def test_reward_functions_are_called_by_keyword(make_trainer, rollout):
    calls = []

    def reward(*args, **kwargs):
        calls.append((args, set(kwargs)))
        return [0.0] * len(kwargs["completions"])

    rollout(make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, reward_funcs=reward))
    args, names = calls[0]
    assert args == ()
    assert names == {
        "prompts",
        "completions",
        "completion_ids",
        "solution",
        "trainer_state",
        "log_extra",
        "log_metric",
    }


def test_tiny_prompts_differ_in_length():
    """Left padding is exercised only if they do."""
    assert len({len(prompt) for prompt in tiny.dataset()["prompt"]}) > 1


def test_completions_may_come_again_from_a_rollout_func(make_trainer):
    """`DynamicSampling` keeps what `_generate` returns and gives it back: the same metrics, and twice the tokens."""
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    prompts = ["1+1="] * 8
    generated = trainer._generate(prompts)
    prompt_ids, completion_ids, env_mask, _, logprobs, fields, images, _ = generated
    assert (env_mask, logprobs, fields, images) == (None, None, {}, None)
    metrics = dict(trainer._metrics["train"])
    trainer._metrics["train"].clear()
    output = {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": None, "env_mask": None}
    trainer.rollout_func = lambda prompts, trainer: output
    assert trainer._generate(prompts)[:7] == generated[:7]
    [tokens] = metrics["num_tokens"]
    assert trainer._metrics["train"] == {**metrics, "num_tokens": [2 * tokens]}
    assert trainer.state.num_input_tokens_seen == 2 * tokens


def test_the_sampler_repeats_each_prompt_and_each_batch(make_trainer):
    """`PromptOrder` takes the first of each."""
    split = {"per_device_train_batch_size": 4, "steps_per_generation": 2, "num_iterations": 3}
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, **split)
    rows = torch.tensor(list(trainer._get_train_sampler())).view(8, 6, 2, 4)  # batches, repetitions, prompts, rows
    assert torch.equal(rows, rows[:, :1, :, :1].expand_as(rows))
    assert rows[:, 0, :, 0].flatten().sort().values.tolist() == list(range(16))
