"""
What is refused because it could only fail on GPUs. And mistakes that are silent: `DeltaGRPOConfig` and the commands
refuse them, the trainer warns and trains.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import TrainingArguments
from trl import GRPOConfig
from trl.chat_template_utils import qwen3_5_think_chat_template
from trl.rewards import think_format_reward

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.credit import FIPO, DelTA
from delta_trl.rewards import get_reward, math_reward
from delta_trl.trainer.checks import check_sampling, check_save_steps

from ..corpus import tiny
from ..trainers import logged, ragged


def config(**options) -> DeltaGRPOConfig:
    return DeltaGRPOConfig("unused", use_cpu=True, **{"bf16": False, **options})


def trainer(fsdp=0, zero=0, dora=None, processor=None, **options) -> SimpleNamespace:
    """As much of a trainer as a rule looks at."""
    args = config(**options)
    args.deepspeed_plugin = SimpleNamespace(zero_stage=zero) if zero else None
    return SimpleNamespace(
        args=args,
        is_fsdp_enabled=fsdp > 0,
        accelerator=SimpleNamespace(is_fsdp2=fsdp == 2),
        model=SimpleNamespace(peft_config={name: LoraConfig(use_dora=name == dora) for name in ("default", "second")}),
        processing_class=processor,
    )


FULL, LM_HEAD, TOP_K = (DelTA(token_gradient=name) for name in ("full", "lm_head", "topk_hidden"))


@pytest.mark.parametrize(
    ("rule", "setup", "message"),
    [
        (FULL, {"zero": 1, "bf16": True}, "DeepSpeed in 16 bits"),
        (FULL, {"zero": 2, "fp16": True}, "DeepSpeed in 16 bits"),
        (LM_HEAD, {"zero": 3}, "ZeRO-3"),
        (LM_HEAD, {"fsdp": 1}, "FSDP1"),
        (FULL, {"fsdp": 2, "gradient_accumulation_steps": 2}, "accumulation under FSDP"),
        (FULL, {"fsdp": 1}, "FSDP1"),
        (FULL, {"zero": 3}, "ZeRO-3"),
        (TOP_K, {"zero": 3}, "ZeRO-3"),
        (TOP_K, {"fsdp": 1}, "FSDP1"),
        (FULL, {"dora": "default"}, "DoRA"),
        (FULL, {"dora": "second"}, "DoRA"),
        (FULL, {"processor": SimpleNamespace(tokenizer=None)}, "a processor of images"),
        (DelTA(), {"zero": 3, "bf16": True}, None),
        (DelTA(), {"fsdp": 1, "gradient_accumulation_steps": 2, "dora": "default"}, None),
        (LM_HEAD, {"fsdp": 2, "gradient_accumulation_steps": 2, "dora": "default"}, None),
        (FULL, {"gradient_accumulation_steps": 2, "bf16": True}, None),
        (LM_HEAD, {"zero": 2, "bf16": True}, None),
        (FULL, {"zero": 2}, None),
        (FULL, {"fsdp": 2, "bf16": True}, None),
    ],
    ids=str,
)
def test_gradients_that_cannot_be_had_are_refused(rule, setup, message):
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        rule.check(trainer(**setup))


@pytest.mark.parametrize(("accumulation", "is_refused"), [(1, False), (2, False), (4, True), (8, True)])
def test_fipo_is_refused_where_no_step_follows_another_on_a_rollout_batch(accumulation, is_refused):
    setup = trainer(steps_per_generation=4, gradient_accumulation_steps=accumulation)
    with pytest.raises(ValueError, match="all weights are 1") if is_refused else nullcontext():
        FIPO().check(setup)


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo", "luspo", "sapo"])
def test_options_with_which_the_loss_ignores_credit_are_refused(loss_type):
    for rule in ("delta", "fipo"):
        with pytest.raises(ValueError, match="importance_sampling_level='sequence'"):
            config(loss_type=loss_type, importance_sampling_level="sequence", token_credit=rule)
    config(loss_type=loss_type, importance_sampling_level="sequence", token_credit="none")


@pytest.mark.parametrize("loss_type", ["cispo", "vespo"])
def test_losses_that_credit_tokens_at_sequence_level_are_taken(loss_type):
    config(loss_type=loss_type, importance_sampling_level="sequence")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, None),
        ({"min_p": 0.0, "generation_kwargs": {"top_k": None, "do_sample": True}}, None),
        ({"top_p": 0.9, "generation_kwargs": {"top_p": 1.0}}, None),  # which is what counts
        ({"generation_kwargs": {"top_p": 0.9}}, "top_p=0.9: "),
        ({"top_k": 50}, "top_k=50: "),
        ({"min_p": 0.1}, "min_p=0.1: "),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1: "),
    ],
    ids=str,
)
def test_sampling_that_changes_the_distribution_is_warned_of(options, named):
    warnings = check_sampling(config(**options))
    assert bool(warnings) is bool(named)
    assert all(warning.startswith(named) for warning in warnings)


@pytest.mark.parametrize(
    ("save_steps", "max_steps", "is_within"),
    [
        (1, 4, True),
        (2, 4, False),
        (3, 3, True),
        (3, 2, False),  # none is saved
        (3, -1, True),
        (0.1, -1, False),  # a share of a run whose length is not known here
    ],
)
def test_checkpoints_within_a_rollout_batch_are_warned_of(save_steps, max_steps, is_within):
    """Of two optimiser steps."""
    args = config(num_iterations=2, save_strategy="steps", save_steps=save_steps, max_steps=max_steps)
    assert bool(check_save_steps(args)) is is_within
    args.save_strategy = "epoch"
    assert not check_save_steps(args)


@pytest.mark.parametrize(
    ("options", "recomputes"),
    [
        ({}, True),
        ({"gradient_checkpointing": False}, False),
        ({"activation_checkpointing": False}, False),
        ({"activation_checkpointing": True, "gradient_checkpointing": False}, True),
    ],
    ids=str,
)
def test_activations_are_recomputed_by_either_name_of_the_option(options, recomputes):
    args = config(**options)
    assert (args.activation_checkpointing, args.gradient_checkpointing) == (recomputes, recomputes)


# --- mistakes that are silent ---

CHATS = Dataset.from_dict({"prompt": [[{"role": "user", "content": "1+1="}]] * 16, "solution": ["2"] * 16})
WITHOUT_GOLDS = tiny.dataset().map(lambda row: {"solution": ""})
EMPTY = Dataset.from_dict({"prompt": [""] * 16, "solution": [""] * 16})


def with_template(template: str):
    tokenizer = tiny.tokenizer(tiny.CHARACTERS + "<>\n")
    tokenizer.chat_template = template
    return tokenizer


# Rewards see the completion alone: `<think>` is in the prompt
OPENS = with_template("{{ messages[0].content }}{% if not direct %}<think>\n{% endif %}")
NEEDS_AN_OPTION = with_template("{% if not style %}{{ raise_exception('style') }}{% endif %}{{ messages[0].content }}")
WITHOUT_END = tiny.tokenizer()
WITHOUT_END.eos_token = None
ON_CHATS = {"train_dataset": CHATS, "reward_funcs": math_reward}


MISTAKES = [
    (
        {
            "train_dataset": WITHOUT_GOLDS,
            "reward_funcs": ["math_reward", math_reward],  # TRL would look for models of these names on the hub
            "top_p": 0.8,
            "generation_kwargs": {"min_p": 0.1},
            "peft_config": LoraConfig(target_modules=["self_attn.q_proj", "v_porj"]),
        },
        ["cannot use 16 of 16 golds", "top_p=0.8, min_p=0.1", "no module 'v_porj'"],
    ),
    (
        {
            **ON_CHATS,
            "processing_class": OPENS,
            "peft_config": LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_haed"]),
        },
        ["'lm_head'"],
    ),
    (
        {
            **ON_CHATS,
            "train_dataset": CHATS.remove_columns("solution"),
            "processing_class": with_template("1+1="),
        },
        ["'solution'", "leaves out"],
    ),
    (
        {"eval_dataset": {"even": tiny.dataset().remove_columns("solution")}, "reward_funcs": math_reward},
        ["eval_dataset even", "'solution'"],
    ),
    ({"train_dataset": tiny.dataset().rename_column("prompt", "question")}, ["has no column 'prompt'"]),
    ({"train_dataset": Dataset.from_list([*tiny.dataset(), {"prompt": None}])}, ["train_dataset, row 17"]),
    ({"train_dataset": tiny.dataset().select([]), "reward_funcs": math_reward}, ["0 rows are too few"]),
    ({"max_completion_length": 10**6}, ["max_completion_length=1000000 is longer than the model's"]),
    ({"reward_funcs": think_format_reward}, ["conversational"]),
    ({"train_dataset": tiny.dataset().select(range(1))}, ["1 rows are too few"]),
    ({"config_class": GRPOConfig, "accelerator_config": {"split_batches": True}}, ["sets split_batches"]),
    ({"config_class": GRPOConfig, "accelerator_config": {"dispatch_batches": True}}, ["sets dispatch_batches"]),
    ({"processing_class": WITHOUT_END, "eval_dataset": tiny.dataset()}, ["has no eos_token"]),
    ({"vllm_max_model_length": 1}, ["vllm_max_model_length=1"]),  # which is of no effect
]


@pytest.mark.parametrize(("options", "messages"), MISTAKES)
def test_silent_mistakes_are_warned_of(make_trainer, caplog, options, messages):
    make_trainer(tiny.model(vocab_size=len(OPENS)), **options)
    for message in messages:
        assert caplog.text.count(message) == 1
    assert "range()" not in caplog.text  # an error of ours


def test_a_model_with_nothing_to_train_is_warned_of(make_trainer, caplog, tmp_path):
    """PEFT loads adapters for inference by default."""
    get_peft_model(tiny.model(), LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path)
    make_trainer(PeftModel.from_pretrained(tiny.model(), tmp_path))
    assert "no weights that can be trained" in caplog.text
    caplog.clear()
    make_trainer(PeftModel.from_pretrained(tiny.model(), tmp_path, is_trainable=True))
    assert "no weights that can be trained" not in caplog.text


def test_arguments_of_another_trainer_are_refused():
    with pytest.raises(ValueError, match="args is a TrainingArguments"):
        DeltaGRPOTrainer(tiny.model(), tiny.reward_letters, TrainingArguments("unused", use_cpu=True))


# --- what GRPOTrainer trains, trains without a word ---


class RewardsItself(DeltaGRPOTrainer):
    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        return torch.arange(len(completions))[:, None] % 4 * 1.0


class MakesPrompts(DeltaGRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        return super()._generate_and_score_completions([{**row, "prompt": "1+1=", "solution": "2"} for row in inputs])


TRAINED = {
    "rewards": {"trainer_class": RewardsItself, "train_dataset": WITHOUT_GOLDS, "reward_funcs": math_reward},
    "empty prompts": {"trainer_class": MakesPrompts, "train_dataset": EMPTY, "reward_funcs": math_reward},
    "rollout_func": {
        "rollout_func": ragged,
        "max_completion_length": 24,
        "train_dataset": WITHOUT_GOLDS,
        "reward_funcs": math_reward,
    },
    "stream": {"train_dataset": tiny.dataset().to_iterable_dataset(), "eval_dataset": tiny.dataset(4)},
    "rows of one rollout batch": {"train_dataset": tiny.dataset().select(range(2))},
    "a pattern of modules": {"peft_config": LoraConfig(target_modules=r".*\.q_proj")},
    "transformed": {"train_dataset": EMPTY.with_transform(lambda rows: {"prompt": ["1+1="] * len(rows["prompt"])})},
    "template": {**ON_CHATS, "processing_class": NEEDS_AN_OPTION, "chat_template_kwargs": {"style": 1}},
    "reasoning off": {**ON_CHATS, "processing_class": OPENS, "chat_template_kwargs": {"direct": 1}},
    "reasoning opened": {**ON_CHATS, "processing_class": OPENS},
    "an award and a fine": {
        "reward_funcs": [tiny.reward_letters, lambda completions, **_: [len(text) / 9 for text in completions]],
        "reward_weights": [1.0, -1.0],
    },
}


@pytest.mark.parametrize("options", TRAINED.values(), ids=TRAINED)
def test_trains_what_grpo_trainer_trains(make_trainer, caplog, options):
    trainer = make_trainer(tiny.model(vocab_size=len(OPENS)), **options, max_steps=1)
    assert not caplog.text
    trainer.train()
    assert len(logged(trainer, "loss")) == 1


@pytest.mark.parametrize("method", ["_prepare_inputs", "_generate", "_tokenize_prompts"])
def test_a_subclass_that_may_make_its_own_prompts_hears_nothing_of_the_data(make_trainer, caplog, method):
    kind = type("Own", (DeltaGRPOTrainer,), {method: lambda self, prompts: None})
    make_trainer(trainer_class=kind, train_dataset=WITHOUT_GOLDS, reward_funcs=math_reward)
    assert not caplog.text


def now() -> str:
    """Tell the time."""


@pytest.mark.parametrize(("tools", "told"), [(None, True), ([now], None)])
def test_with_tools_trl_takes_the_reasoning_out(make_trainer, tools, told):
    """So rewards are told of none."""
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = qwen3_5_think_chat_template
    trainer = make_trainer(**ON_CHATS, processing_class=tokenizer, tools=tools)
    [reward] = trainer.reward_funcs
    assert reward.reasoning_opened is told


@pytest.mark.parametrize("opened", [None, False, True])
@pytest.mark.parametrize("direct", [False, True])
def test_rewards_are_told_whether_the_template_opens_the_reasoning(make_trainer, opened, direct):
    """Unless they say so themselves. A completion that never ends its reasoning has no answer."""
    reward = get_reward("math_reward", reasoning_opened=opened)
    trainer = make_trainer(
        tiny.model(vocab_size=len(OPENS)),
        reward_funcs=[reward],
        train_dataset=CHATS,
        processing_class=OPENS,
        chat_template_kwargs={"direct": direct},
    )
    expected = not direct if opened is None else opened
    never_ends = [{"role": "assistant", "content": r"It may be \boxed{2}"}]
    assert trainer.reward_funcs[0]([never_ends], ["2"]) == [0.0 if expected else 1.0]
    assert reward.reasoning_opened is opened
