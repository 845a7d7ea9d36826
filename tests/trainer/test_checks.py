"""What is refused or corrected at construction because it would fail on GPUs only."""

import functools
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from torch import nn

from delta_trl import DeltaGRPOConfig
from delta_trl.credit import DelTA, WithinSide
from delta_trl.rewards import get_reward, math_reward
from delta_trl.trainer.checks import refuse_what_hides_states

from ..corpus import tiny


def config(**options) -> DeltaGRPOConfig:
    return DeltaGRPOConfig("unused", use_cpu=True, **{"bf16": False, **options})


def test_compiled_shards_show_their_hidden_states_once_only():
    with pytest.raises(ValueError, match="FSDP and torch_compile together"):
        refuse_what_hides_states(config(torch_compile=True), is_fsdp_enabled=True)
    refuse_what_hides_states(config(torch_compile=True), is_fsdp_enabled=False)
    refuse_what_hides_states(config(), is_fsdp_enabled=True)


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
        (FULL, {"zero": 2, "bf16": True}, "DeepSpeed in 16 bits.*bf16: false"),
        (FULL, {"zero": 3}, "ZeRO-3, which holds no whole parameter"),
        (DelTA(token_gradient="lm_head"), {"zero": 3}, "ZeRO-3"),
        (DelTA(token_gradient="topk_hidden"), {"fsdp": 1}, "FSDP1"),
        (FULL, {"fsdp": 1}, "FSDP1"),
        (FULL, {"fsdp": 2, "gradient_accumulation_steps": 2}, "accumulation under FSDP"),
    ],
    ids=str,
)
def test_gradients_that_cannot_be_had_are_refused(rule, setup, message):
    with pytest.raises(ValueError, match=message):
        rule.check(trainer(**setup))


@pytest.mark.parametrize(
    ("rule", "setup"),
    [
        (DelTA(), {"zero": 3, "bf16": True}),
        (WithinSide(), {"fsdp": 1, "bf16": True}),
        (DelTA(token_gradient="lm_head"), {"zero": 2, "bf16": True}),
        (FULL, {"zero": 2}),
        (FULL, {"fsdp": 2, "bf16": True}),
        (FULL, {"bf16": True}),
    ],
    ids=str,
)
def test_what_works_is_not(rule, setup):
    rule.check(trainer(**setup))


def test_a_temperature_that_log_probabilities_do_not_know(make_trainer, caplog):
    make_trainer(generation_kwargs={"temperature": 0.5, "use_cache": True})
    assert "samples at temperature 0.5, but log-probabilities are computed at temperature=1" in caplog.text
    caplog.clear()
    make_trainer(temperature=0.5, generation_kwargs={"use_cache": True})
    assert not caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward_funcs": "math_reward"}, "reward_funcs='math_reward'.*get_reward"),
        ({"reward_weights": [math.nan]}, "reward_weights"),
        (
            {
                "trainer_options": {
                    "token_credit": DelTA(token_gradient="full"),
                    "peft_config": LoraConfig(use_dora=True, target_modules=["q_proj"]),
                }
            },
            "does not work with DoRA",
        ),
    ],
    ids=["name of a reward", "weight", "DoRA"],
)
def test_mistakes_in_python(make_trainer, change, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(**change)


QUESTION = {"role": "user", "content": "1+1="}


def few_words() -> dict:
    tokenizer = tiny.tokenizer("01")
    tokenizer.unk_token = "<pad>"
    return {"processing_class": tokenizer}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": tiny.model().requires_grad_(False)}, "frozen"),
        (
            {"model": tiny.model(max_position_embeddings=11)},
            "max_completion_length=8 more: the model has 11",
        ),
        (
            {
                "model": tiny.model(max_position_embeddings=30),
                "trainer_options": {"eval_dataset": {"long": Dataset.from_dict({"prompt": ["1+1=" * 9, "1+1="]})}},
                "eval_strategy": "steps",
                "eval_steps": 2,
            },
            "eval_dataset 'long'",
        ),
        ({"trainer_options": few_words()}, "does not know"),
        ({"loss_type": "cispo"}, "at epsilon_high=0.28, and they are 1"),
    ],
    ids=["frozen", "positions", "evaluation", "words", "cap"],
)
def test_what_grpo_trainer_does_is_only_doubted(make_trainer, caplog, change, message):
    make_trainer(**change)
    assert message in caplog.text


@functools.wraps(lambda completion, solution: 1.0)  # of which Python knows the signature
def adapted(completions, solution, **kwargs):
    return tiny.reward_letters(completions)


def transformed():
    return (
        tiny.dataset()
        .rename_column("prompt", "question")
        .with_transform(lambda rows: {"prompt": rows["question"], "solution": rows["solution"]})
    )


@pytest.mark.parametrize(
    "change",
    [
        {"reward_funcs": adapted},
        {"train_dataset": tiny.dataset().with_format("numpy")},
        {"train_dataset": tiny.dataset().add_column("trainer_state", ["-"] * 16)},
        {"model": tiny.model(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4})},
        {"model_init_kwargs": '{"max_position_embeddings": 4e3}'},
        {"top_k": None},
        {
            "trainer_options": {"rollout_func": print, "eval_dataset": Dataset.from_dict({"prompt": [[QUESTION]]})},
            "eval_strategy": "steps",
        },
    ],
    ids=["wrapped", "numpy", "column", "stretched", "json", "top_k", "own ids"],
)
def test_what_grpo_trainer_takes_is_taken(make_trainer, change):
    make_trainer(**change)


def test_a_dataset_that_is_transformed(make_trainer):
    make_trainer(train_dataset=transformed())


def test_json_is_read_as_trl_reads_it():
    given = '{"min_lr": 1e-7, "split": "false"}'
    assert config(lr_scheduler_kwargs=given).lr_scheduler_kwargs["min_lr"] == 1e-7
    assert config(generation_kwargs="{top_p: 0.5}").generation_kwargs == {"top_p": 0.5}


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_vllm_that_is_not_there(make_trainer):
    with pytest.raises(ImportError, match=r"pip install 'trl\[vllm\]'"):
        make_trainer("no/such-model", use_vllm=True)


@pytest.mark.processes
def test_vllm_that_trl_cannot_import(tmp_path):
    """TRL imports whatever vLLM there is, and `delta-trl` says in a line what that means."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("class LLM: pass")
    (tmp_path / "vllm-0.21.0.dist-info").mkdir()
    (tmp_path / "vllm-0.21.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm\nVersion: 0.21.0\n"
    )
    command = [sys.executable, "-m", "delta_trl.cli", "train", "--config", "recipes/quickstart/addition.yaml"]
    command += ["--output_dir", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "vLLM 0.21.0 is installed: is it a version that this TRL supports?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "options", [{"do_sample": False}, {"num_beams": 2}, {"top_p": 0.5}, {"no_repeat_ngram_size": 2}], ids=str
)
def test_generation_from_another_distribution_is_told_of(make_trainer, caplog, options):
    make_trainer(generation_kwargs={"top_k": 0, "repetition_penalty": 1.0, "eos_token_id": [1, 2]})
    assert "of another distribution" not in caplog.text
    make_trainer(generation_kwargs=options)
    [(name, value)] = options.items()
    assert (
        f"generation_kwargs samples with {name}={value!r}, but log-probabilities are computed without" in caplog.text
    )


@pytest.mark.parametrize(
    "wrong",
    [{"scale_rewards": "groups"}, {"importance_sampling_level": "sequences"}, {"multi_objective_aggregation": "sum"},
     {"vllm_importance_sampling_mode": "mask"}, {"top_k": -1}],
    ids=str,
)  # fmt: skip
def test_choices_are_checked_at_construction(wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(ValueError, match=f"{name}={value!r}: expected "):
        config(**wrong)
    assert config(scale_rewards="false").scale_rewards == "none" == config(scale_rewards=False).scale_rewards


def test_an_option_that_is_given_twice():
    with pytest.raises(ValueError, match="also in token_credit_kwargs: lambda_max"):
        config(token_credit="delta:lambda_max=1.5", token_credit_kwargs={"lambda_max": 2.0})


@pytest.mark.parametrize("rule", ["none", "fipo"])
def test_a_log_of_no_credit_is_dropped(make_trainer, caplog, rule):
    make_trainer(token_credit=rule, log_token_credit=1, num_iterations=2, max_steps=1).train()
    assert "log_token_credit" in caplog.text
    caplog.clear()
    make_trainer(log_token_credit=1)
    assert "log_token_credit" not in caplog.text


def test_what_stops_generation_ends_a_completion(make_trainer):
    """Else padding would be trained."""
    tokenizer = tiny.tokenizer()
    stops = tokenizer.convert_tokens_to_ids(list("abcdefgh"))
    trainer = make_trainer(generation_kwargs={"eos_token_id": [tokenizer.eos_token_id, *stops]})
    batch = {}
    compute, trainer._compute_loss = (
        trainer._compute_loss,
        lambda model, inputs: batch.update(inputs) or compute(model, inputs),
    )
    trainer.train()
    ends = torch.isin(batch["completion_ids"], torch.tensor(stops)).int()
    after = ends.cumsum(dim=1) - ends > 0
    assert after.any()
    assert not batch["completion_mask"][after].any()


def test_completions_without_a_limit(make_trainer):
    """As TRL documents `max_completion_length`."""
    trainer = make_trainer(max_completion_length=None, generation_kwargs={"max_new_tokens": 4})
    assert trainer.args.max_completion_length is None


def test_a_chat_template_that_opens_the_reasoning(make_trainer, caplog):
    """Rewards see the completion alone: `<think>` is in the prompt."""
    tokenizer = tiny.tokenizer(tiny.CHARACTERS + "<>\n")
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message.content }}{% endfor %}{% if not direct %}<think>\n{% endif %}"
    )
    chats = [{"prompt": [{"role": "user", "content": row["prompt"]}], "solution": "1"} for row in tiny.dataset()]
    told = get_reward("math_reward", reasoning_opened=True)
    for reward, template, warns in (
        (math_reward, None, True),
        (told, None, False),
        (math_reward, {"direct": 1}, False),
    ):
        caplog.clear()
        make_trainer(
            tiny.model(vocab_size=len(tokenizer)),
            reward_funcs=reward,
            train_dataset=Dataset.from_list(chats),
            chat_template_kwargs=template,
            trainer_options={"processing_class": tokenizer},
        )
        assert ("{math_reward: {reasoning_opened: true}}" in caplog.text) is warns
