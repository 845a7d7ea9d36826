"""
What the trainer relies on in TRL: the check of its list (delta_trl/trainer/trl_contracts.py), and a canary for each
thing that only a run shows. If one fails, TRL changed under us: its message says what to adapt.
"""

import functools
import inspect
import re
import tomllib
from importlib.metadata import version
from types import FunctionType

import pytest
import torch
from transformers import Trainer
from trl import GRPOConfig, GRPOTrainer
from trl.extras.profiling import profiling_decorator
from trl.models.utils import prepare_fsdp
from trl.trainer.utils import shuffle_sequence_dict

from delta_trl import DeltaGRPOTrainer
from delta_trl.trainer import trl_contracts
from delta_trl.trainer.config import VALID
from delta_trl.trainer.scoring import MULTIMODAL
from delta_trl.trainer.trl_contracts import ATTRIBUTES, IMPORTED, METHODS, OLDEST, OPTIONS, SCORING, TESTED

from .corpus import tiny
from .test_layers import ROOT, files, imported


CHANGES = {
    "renamed": ("_compute_loss", "self, model, batch", "self, model, inputs"),
    "optional, which ours would drop": ("_compute_loss", "self, model, inputs, scale=1", "self, model, inputs"),
    "required": (
        SCORING,
        "self, model, input_ids, attention_mask, logits_to_keep, batch_size, tools, compute_entropy=False",
        METHODS[SCORING],
    ),
    "no longer an option": ("evaluation_loop", "self, dataloader, prefix='eval'", METHODS["evaluation_loop"]),
}


def refused() -> str:
    """The lines of the check's error about what has changed."""
    with pytest.raises(ImportError) as error:
        trl_contracts.check()
    first, *changes, last = str(error.value).splitlines()
    assert f"TRL {version('trl')} " in first
    assert f'pip install "trl=={TESTED["trl"]}.*"' in last
    return "\n".join(changes)


def take(monkeypatch, name: str, parameters: str) -> None:
    """Give a method other parameters, and nothing else."""
    changed = functools.wraps(getattr(GRPOTrainer, name))(lambda: None)
    changed.__signature__ = inspect.signature(eval(f"lambda {parameters}: None"))
    monkeypatch.setattr(GRPOTrainer, name, changed)


@pytest.mark.parametrize(("name", "parameters", "expected"), CHANGES.values(), ids=CHANGES)
def test_changed_parameters_are_refused(monkeypatch, name, parameters, expected):
    take(monkeypatch, name, parameters)
    assert refused() == f"- GRPOTrainer.{name} takes ({parameters}), expected ({expected})"


def test_more_options_are_passed_on(monkeypatch):
    options = "batch_size=None, compute_entropy=False, videos=None"
    take(monkeypatch, SCORING, f"self, model, input_ids, attention_mask, logits_to_keep, {options}")
    trl_contracts.check()


def test_what_is_gone_is_refused_with_one_error(monkeypatch):
    loss = GRPOTrainer._compute_loss
    constants = tuple("gains" if constant == "advantages" else constant for constant in loss.__code__.co_consts)
    changed = FunctionType(loss.__code__.replace(co_consts=constants), loss.__globals__)
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", changed)
    monkeypatch.delattr(GRPOTrainer, "_generate_and_score_completions")
    assert refused().splitlines()[:2] == [
        "- GRPOTrainer._generate_and_score_completions is gone",
        "- GRPOTrainer._compute_loss has no batch entry 'advantages'",
    ]


def test_the_list_has_all_that_ours_use():
    ours = DeltaGRPOTrainer.__mro__[: DeltaGRPOTrainer.__mro__.index(GRPOTrainer)]
    functions = {name for cls in ours for name, value in vars(cls).items() if inspect.isfunction(value)}
    assert {name for name in functions if hasattr(GRPOTrainer, name)} <= METHODS.keys(), "or TRL has taken our name"
    paths = files("delta_trl")
    assert {".".join(name) for path in paths for name in imported(path) if name[0] == "trl"} == IMPORTED.keys()
    text = "".join(path.read_text() for path in paths)
    options = set(GRPOConfig.__annotations__) & {*re.findall(r"\bargs\.(\w+)", text), *VALID}
    assert options <= set(OPTIONS)
    text = "".join(path.read_text() for path in files("delta_trl/trainer") if path.name != "config.py")
    stored = set(re.findall(r"self\.(\w+) = ", inspect.getsource(GRPOTrainer.__init__)))
    assert stored & {*re.findall(r"\b(?:self|_?trainer)\.(?=(\w+))", text)} <= set(ATTRIBUTES)


def test_versions_of_the_list_are_those_of_the_project():
    [range_of_trl] = (
        requirement
        for requirement in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        if requirement.startswith("trl")
    )
    assert range_of_trl.startswith(f"trl>={OLDEST},")
    pins = (ROOT / "constraints.txt").read_text()
    assert all(f"\n{package}=={known}." in pins for package, known in TESTED.items())


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


def test_scoring_is_profiled_and_only_calls_the_model(make_trainer, rollout):
    """`TrimmedPadding._score_piece` goes around the profiler, and tells the model positions."""
    method = GRPOTrainer._get_per_token_logps_and_entropies
    assert method.__code__ is profiling_decorator(lambda: None).__code__
    assert not hasattr(method.__wrapped__, "__wrapped__"), "`_score_piece` would go around more than the profiler"
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    batch = rollout(trainer)
    ids, mask = (torch.cat([batch[f"prompt_{x}"], batch[f"completion_{x}"]], dim=1) for x in ("ids", "mask"))
    length, calls = batch["completion_ids"].size(1), []
    given = method(trainer, lambda **inputs: calls.append(set(inputs)) or trainer.model(**inputs), ids, mask, length)
    assert torch.equal(given[0], method(trainer, trainer.model, ids, mask, length)[0])
    assert calls == [{"input_ids", "attention_mask", "labels", "fused_lm_head"}]


def test_how_many_were_cut_off_is_known_before_the_rewards(make_trainer, rollout):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    calculate, seen = trainer._calculate_rewards, []

    def calculating(*args):
        seen.append(list(trainer._metrics["train"]["completions/clipped_ratio"]))
        return calculate(*args)

    trainer._calculate_rewards = calculating
    batch = rollout(trainer)
    ends = (batch["completion_ids"] == trainer.processing_class.eos_token_id).any(dim=1)
    assert seen == [[1 - ends.float().mean().item()]], "a rollout batch's warning names it"


@pytest.mark.parametrize("reward", [1.0, 0.1, 1 / 3])
def test_groups_without_contrast_have_no_advantage(make_trainer, rollout, reward):
    """Up to rounding in TRL; `DeltaGRPOTrainer` takes that away, for it would count as a side."""
    options = {"reward_funcs": lambda completions, **_: [reward] * 4 + [0.0, 1.0] * 2}
    theirs = rollout(make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, **options))["advantages"]
    ours = rollout(make_trainer(**options))["advantages"]
    assert theirs[:4].abs().max() < 2e-3
    assert (ours[:4] == 0).all()
    assert torch.equal(ours[4:], theirs[4:])
    assert ours[4:].abs().min() > 0.5


def test_the_reference_is_sharded_after_the_accelerator_is_made():
    """`FSDPPrecision` sets the precision that both models are sharded with."""
    construct = inspect.getsource(GRPOTrainer.__init__)
    assert -1 < construct.index("super().__init__(") < construct.index("prepare_fsdp(")
    assert "self.create_accelerator_and_postprocess()" in inspect.getsource(Trainer.__init__)
    assert "fsdp_plugin.mixed_precision_policy" in inspect.getsource(prepare_fsdp)


def test_a_rollout_batch_is_shuffled_by_the_next_random_numbers(make_trainer):
    """Else `TrimmedPadding` trains in another random order than TRL would."""
    expected = torch.random.get_rng_state()
    shuffled = shuffle_sequence_dict({"row": torch.arange(9)})["row"]
    torch.random.set_rng_state(expected)
    assert torch.equal(shuffled, torch.randperm(9))


def test_generate_and_score_takes_the_rows_of_a_process(make_trainer, rollout):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    inputs = []
    generate = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda rows: inputs.append(rows) or generate(rows)
    batch = rollout(trainer)
    assert len(inputs[0]) == len(batch["advantages"]) == 8


def test_calculate_rewards_returns_those_of_all_functions(make_trainer, rollout):
    """Unweighted, of all rows, before they become advantages; `ReportsAvgAtK` takes the first column."""
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


def test_columns_keep_one_rollout_batch(make_trainer, rollout):
    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig)
    rollout(trainer)
    trainer._logs["extra"]["column"].extend([1] * 100)
    assert len(trainer._logs["extra"]["column"]) == 8, "columns of the completions table keep one rollout batch"


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
