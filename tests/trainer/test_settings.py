"""The record of what a run was started with."""

import json
import re
from pathlib import Path

import pytest
from peft import LoraConfig
from trl import GRPOConfig

from delta_trl import __version__
from delta_trl.arguments.errors import UsageError
from delta_trl.credit import DelTA, Selected, TokenCredit
from delta_trl.trainer.settings import _open, changes, may_change, settings_of

from ..corpus import tiny
from ..trainers import LORA


def read(tmp_path) -> dict:
    return json.loads((tmp_path / "run" / "training_settings.json").read_text())


def test_is_there_from_the_first_step(make_trainer, tmp_path):
    seen = []

    def reward(completions, **kwargs):
        seen.append(read(tmp_path))
        return [float(i % 2) for i in range(len(completions))]

    trainer = make_trainer(reward_funcs=reward, token_credit_kwargs={"lambda_max": 1.5}, learning_rate=2e-4, seed=7)
    assert not (tmp_path / "run" / "training_settings.json").exists()
    trainer.train()
    record = seen[0]
    assert record == read(tmp_path)
    assert record["token_credit"]["rule"] == "DelTA"
    assert record["token_credit"]["options"]["lambda_max"] == 1.5
    assert record["token_credit"]["changed"] == ["lambda_max"]
    assert record["rewards"] == {"reward": 1.0}
    assert record["rows"] == len(trainer.train_dataset)
    assert (record["arguments"]["learning_rate"], record["arguments"]["seed"]) == (2e-4, 7)
    assert record["arguments"]["epsilon_high"] == 0.28
    assert record["versions"]["delta_trl"] == __version__
    assert record["recipe"] is None


@pytest.mark.parametrize(
    ("rule", "name", "changed"),
    [
        (TokenCredit(), "none", []),
        (DelTA(), "DelTA", []),
        (Selected(which="bottom"), "Selected", ["which"]),
        (Selected(DelTA(lambda_max=1.5)), "Selected", ["rule"]),
        (type("Mine", (TokenCredit,), {"of_rollout": lambda self, tokens: None})(), "Mine()", []),
    ],
)
def test_rules(make_trainer, rule, name, changed):
    record = make_trainer(config_class=GRPOConfig, trainer_options={"token_credit": rule}).settings()["token_credit"]
    assert (record["rule"], record["changed"]) == (name, changed)
    json.dumps(record)


def test_secrets_are_left_out(make_trainer, tmp_path):
    nested = {"model_init_kwargs": {"token": "hf_1", "api_key": "2", "revision": "main"}, "hub_token": "3", "a_key": 4}
    assert _open(nested) == {"model_init_kwargs": {"revision": "main"}}
    make_trainer(hub_token="hf_secret").train()
    assert "hf_secret" not in (tmp_path / "run" / "training_settings.json").read_text()
    assert read(tmp_path)["arguments"]["max_completion_length"] > 0  # "length" is no secret


# --- going on ---


@pytest.fixture
def go_on(make_trainer, tmp_path):
    """A run of two steps, and a trainer that goes on with it under other options."""
    options = {"save_strategy": "steps", "save_steps": 1}
    make_trainer(**options).train()

    def go_on(**changed):
        trainer = make_trainer(**{**options, **changed})
        trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
        return trainer

    return go_on


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"learning_rate": 1e-4}, "arguments.learning_rate was 0.001 and is 0.0001"),
        ({"token_credit": "side_weights"}, "token_credit was 'DelTA' and is 'SideWeights'"),
        ({"token_credit_kwargs": {"lambda_max": 1.5}}, "token_credit.lambda_max was 1.2 and is 1.5"),
        ({"generation_kwargs": {"top_k": 5}}, "arguments.generation_kwargs.top_k was None and is 5"),
        ({"train_dataset": tiny.dataset(8)}, "rows was 16 and is 8"),
        ({"trainer_options": LORA}, "trainable_parameters was"),
        ({"per_device_train_batch_size": 4}, "arguments.generation_batch_size was 8 and is 4"),
        ({"num_iterations": 2}, "optimiser_steps_per_rollout was '1' and is '2'"),
        ({"reward_weights": [0.5]}, "rewards.reward_letters was 1.0 and is 0.5"),
        ({"config_class": GRPOConfig}, "arguments.epsilon_high was 0.28 and is None"),
    ],
)
def test_a_run_goes_on_with_its_own_settings(go_on, tmp_path, changed, message):
    before = read(tmp_path)
    with pytest.raises(UsageError, match=re.escape(message)):
        go_on(**changed)
    assert read(tmp_path) == before


def test_two_runs_in_one_folder_are_two(make_trainer):
    options = {"save_strategy": "steps", "save_steps": 2}
    make_trainer(**options, max_steps=4).train()
    make_trainer(**options, max_steps=2, learning_rate=1e-2).train()  # leaves checkpoint-4 of the first
    with pytest.raises(UsageError, match=r"learning_rate was 0.001 and is 0.01"):
        make_trainer(**options, max_steps=6, learning_rate=1e-2).train(resume_from_checkpoint=True)


def test_another_adapter_or_other_data_are_refused(make_trainer, caplog):
    options = {"save_strategy": "steps", "save_steps": 2}
    make_trainer(**options, trainer_options=LORA).train()
    other = {"peft_config": LoraConfig(r=2, lora_alpha=64, target_modules=["q_proj", "v_proj"])}
    with pytest.raises(UsageError, match="lora_alpha was 8 and is 64"):
        make_trainer(**options, trainer_options=other).train(resume_from_checkpoint=True)
    data = tiny.dataset()
    with pytest.raises(UsageError, match="first_prompt was"):
        make_trainer(**options, trainer_options=LORA, train_dataset=data.select(range(len(data) - 1, -1, -1))).train(
            resume_from_checkpoint=True
        )
    trainer = make_trainer(**options, trainer_options=LORA, max_steps=3)
    record = Path(trainer.args.output_dir, "checkpoint-2", "training_settings.json")
    settings = json.loads(record.read_text())
    settings["adapter"]["peft_version"] = "0.1"
    del settings["adapter"]["use_dora"]  # which an older version did not have
    record.write_text(json.dumps(settings))
    trainer.train(resume_from_checkpoint=True)
    assert "adapter.peft_version was '0.1'" in caplog.text


def test_what_changes_nothing_may_change(go_on, tmp_path, caplog):
    """Half of a batch at a time, for longer, and with other records."""
    record = read(tmp_path) | {"versions": {"trl": "1.0", "python": "2.7"}}
    record["arguments"] |= {"an_option_of_old": 3, "run_name": "earlier", "deepspeed": {"zero": {"stage": 2}}}
    del record["rows"], record["arguments"]["beta"]  # which an older version did not record
    (tmp_path / "run" / "checkpoint-1" / "training_settings.json").write_text(json.dumps(record))
    halves = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    go_on(max_steps=3, trim_padding=False, log_token_credit=1, **halves)
    (warning,) = [line for line in caplog.messages if "The run goes on with other settings" in line]
    for said in (
        "arguments.max_steps was 2 and is 3",
        "trim_padding was True and is False",
        "versions.trl was '1.0'",
        "stage was 2",
    ):
        assert said in warning
    assert "steps_per_generation was 1 and is 2" in warning
    for unsaid in ("of_old", "run_name", "rows", "beta", "log_token_credit"):
        assert unsaid not in warning
    assert read(tmp_path)["arguments"]["max_steps"] == 3


def test_processes_may_change_where_the_batch_stays(make_trainer):
    record = settings_of(make_trainer())
    changed = changes({**record, "processes": 2}, record)
    assert changed == {"processes": (2, 1)}


def test_objects_without_a_text_are_the_same_in_every_process(make_trainer, tmp_path):
    trainer = make_trainer(chat_template_kwargs={"tools": [object()]})
    trainer.train()
    assert read(tmp_path)["arguments"]["chat_template_kwargs"] == {"tools": ["<object object>"]}


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("arguments.logging_steps", True),
        ("arguments.fsdp_config.min_num_params", True),
        ("arguments.model_init_kwargs.attn_implementation", True),
        ("arguments.model_init_kwargs.torch_dtype", False),
        ("versions.torch", True),
        ("rewards.log_quality", False),  # a name that a user gave
        ("token_credit.eval_size", False),
        ("rows", False),
    ],
)
def test_what_may_change_is_told_by_the_option_s_name(name, may):
    assert may_change(name) is may
