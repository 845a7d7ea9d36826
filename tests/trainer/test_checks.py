"""
What is refused because it could only fail on GPUs. And mistakes that are silent: `DeltaGRPOConfig` and the commands
refuse them, the trainer warns and trains.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from torch import nn

from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
from delta_trl.credit import DelTA, WithinSide
from delta_trl.rewards import get_reward, math_reward
from delta_trl.trainer import checks

from ..corpus import tiny
from ..trainers import logged


def config(**options) -> DeltaGRPOConfig:
    return DeltaGRPOConfig("unused", use_cpu=True, **{"bf16": False, **options})


def trainer(fsdp=0, zero=0, **options) -> SimpleNamespace:
    """As much of a trainer as a rule looks at."""
    args = config(**options)
    plugin = SimpleNamespace(zero_stage=zero) if zero else None
    sizes = SimpleNamespace(vocab_size=32, num_hidden_layers=2)
    return SimpleNamespace(
        args=SimpleNamespace(**{**vars(args), "deepspeed_plugin": plugin}),
        is_fsdp_enabled=fsdp > 0,
        accelerator=SimpleNamespace(is_fsdp2=fsdp == 2, unwrap_model=lambda model: model),
        model=SimpleNamespace(
            config=SimpleNamespace(get_text_config=lambda: sizes), parameters=nn.Linear(1, 1).parameters
        ),
        processing_class=SimpleNamespace(),
    )


FULL = DelTA(token_gradient="full")


@pytest.mark.parametrize(
    ("rule", "setup", "message"),
    [
        (FULL, {"zero": 1, "bf16": True}, "DeepSpeed in 16 bits"),
        (FULL, {"zero": 3}, "ZeRO-3"),
        (DelTA(token_gradient="lm_head"), {"zero": 3}, "ZeRO-3"),
        (DelTA(token_gradient="topk_hidden"), {"fsdp": 1}, "FSDP1"),
        (FULL, {"fsdp": 1}, "FSDP1"),
        (FULL, {"fsdp": 2, "gradient_accumulation_steps": 2}, "accumulation under FSDP"),
        (DelTA(), {"zero": 3, "bf16": True}, None),
        (WithinSide(), {"fsdp": 1, "bf16": True}, None),
        (DelTA(token_gradient="lm_head"), {"zero": 2, "bf16": True}, None),
        (FULL, {"zero": 2}, None),
        (FULL, {"fsdp": 2, "bf16": True}, None),
        (FULL, {"bf16": True}, None),
    ],
    ids=str,
)
def test_gradients_that_cannot_be_had_are_refused(rule, setup, message):
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        rule.check(trainer(**setup))


def test_a_rule_that_cannot_work_is_refused(make_trainer):
    adapter = {"peft_config": LoraConfig(use_dora=True, target_modules=["q_proj"])}
    with pytest.raises(ValueError, match="DoRA"):
        make_trainer(trainer_options={"token_credit": FULL, **adapter})


# --- mistakes that are silent ---

CHATS = Dataset.from_list(
    [{"prompt": [{"role": "user", "content": row["prompt"]}], "solution": "1"} for row in tiny.dataset()]
)


WITHOUT_GOLDS = tiny.dataset().map(lambda row: {"solution": ""})


def few_words():
    tokenizer = tiny.tokenizer("01")
    tokenizer.unk_token = "<pad>"
    return tokenizer


def with_template(template: str):
    tokenizer = tiny.tokenizer(tiny.CHARACTERS + "<>\n")
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("options", "trainer_options", "message"),
    [
        ({"train_dataset": tiny.dataset(1)}, {}, "1 rows are too few"),
        ({}, {"peft_config": LoraConfig(target_modules=["q_proj", "v_porj"])}, "no module 'v_porj'"),
        ({}, {"peft_config": LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_haed"])}, "'lm_head'"),
        ({"train_dataset": CHATS}, {"processing_class": with_template("1+1=")}, "leaves out"),
        ({}, {"processing_class": few_words()}, "does not know"),
        ({"reward_funcs": math_reward, "train_dataset": WITHOUT_GOLDS}, {}, "cannot use 16 of 16 golds"),
        ({"top_p": 0.8}, {}, "top_p=0.8: completions are sampled from another distribution"),
        ({"generation_kwargs": {"min_p": 0.1}}, {}, "min_p=0.1"),
    ],
    ids=["rows", "LoRA", "LoRA's other modules", "template", "tokens", "golds", "top_p", "min_p"],
)
def test_silent_mistakes_are_warned_of(make_trainer, caplog, options, trainer_options, message):
    model = tiny.model(vocab_size=len(tiny.CHARACTERS) + 5)
    make_trainer(model, **options, trainer_options=trainer_options)
    assert message in caplog.text


def test_a_check_that_fails_itself_stops_no_run(make_trainer, caplog, monkeypatch):
    monkeypatch.setattr(checks, "check_prompts", lambda *args: {}["unheard of"])
    make_trainer(train_dataset=tiny.dataset(2))
    assert "unheard of" not in caplog.text


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo", "luspo", "sapo"])
def test_options_with_which_the_loss_ignores_credit_are_refused(loss_type):
    for rule in ("delta", "fipo"):
        with pytest.raises(ValueError, match="importance_sampling_level='sequence'"):
            config(loss_type=loss_type, importance_sampling_level="sequence", token_credit=rule)
    config(loss_type=loss_type, importance_sampling_level="sequence", token_credit="none")


def test_a_chat_template_that_opens_the_reasoning(make_trainer, caplog):
    """Rewards see the completion alone: `<think>` is in the prompt."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}{% if not direct %}<think>\n{% endif %}"
    tokenizer = with_template(template)
    told = get_reward("math_reward", reasoning_opened=True)
    for reward, options, warns in (
        (math_reward, None, True),
        (told, None, False),
        (math_reward, {"direct": 1}, False),
    ):
        caplog.clear()
        make_trainer(
            tiny.model(vocab_size=len(tokenizer)),
            reward_funcs=reward,
            train_dataset=CHATS,
            chat_template_kwargs=options,
            trainer_options={"processing_class": tokenizer},
        )
        assert ("reasoning_opened" in caplog.text) is warns


# --- what GRPOTrainer trains, trains ---


class RewardsItself(DeltaGRPOTrainer):
    """The functions could not be called: the dataset has no column `outcome`."""

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        return torch.arange(len(completions))[:, None] % 4 * 1.0


class MakesPrompts(DeltaGRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        return super()._generate_and_score_completions([{**row, "prompt": "1+1="} for row in inputs])


def graded(completions, outcome, **kwargs):
    return outcome


NEEDS_AN_OPTION = "{% if not style %}{{ raise_exception('style') }}{% endif %}{{ messages[0].content }}"


@pytest.mark.parametrize(
    "options",
    [
        {"trainer_class": RewardsItself, "reward_funcs": graded},
        {"trainer_class": MakesPrompts, "train_dataset": Dataset.from_dict({"question": ["1+1="] * 16})},
        {
            "train_dataset": CHATS,
            "reward_funcs": tiny.reward_every_other,
            "chat_template_kwargs": {"style": "short"},
            "trainer_options": {"processing_class": with_template(NEEDS_AN_OPTION)},
        },
        {"token_credit": "none", "log_token_credit": 1},
        {"train_dataset": tiny.dataset().to_iterable_dataset()},
    ],
    ids=["rewards", "prompts", "template", "log_token_credit", "stream"],
)
def test_trains_what_grpo_trainer_trains(make_trainer, caplog, options):
    trainer = make_trainer(tiny.model(vocab_size=len(tiny.CHARACTERS) + 5), **options, max_steps=1)
    trainer.train()
    assert len(logged(trainer, "loss")) == 1
    assert ("log_token_credit is without effect" in caplog.text) is ("log_token_credit" in options)


def transformed():
    return (
        tiny.dataset()
        .rename_column("prompt", "question")
        .with_transform(lambda rows: {"prompt": rows["question"], "solution": rows["solution"]})
    )


@pytest.mark.parametrize("data", [tiny.dataset().with_format("numpy"), transformed()], ids=["numpy", "transformed"])
def test_datasets_in_other_forms(make_trainer, caplog, data):
    make_trainer(train_dataset=data)
    assert not caplog.text


def test_what_stops_generation_ends_a_completion(make_trainer, rollout):
    """Else padding would be trained."""
    tokenizer = tiny.tokenizer()
    stops = tokenizer.convert_tokens_to_ids(list("abcdefgh"))
    batch = rollout(make_trainer(generation_kwargs={"eos_token_id": (tokenizer.eos_token_id, *stops)}))
    ends = torch.isin(batch["completion_ids"], torch.tensor(stops)).int()
    after = ends.cumsum(dim=1) - ends > 0
    assert after.any()
    assert not batch["completion_mask"][after].any()
