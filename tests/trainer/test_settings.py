"""The record of what a run was started with, and what a run that goes on says about it."""

import json
import pickle

import PIL.Image
import pytest
from accelerate import PartialState
from datasets import Dataset, Features, Image, List, Value

from delta_trl import __version__
from delta_trl.arguments.credit import CreditArguments
from delta_trl.files import SETTINGS, write_json
from delta_trl.trainer.settings import as_json, warn_of_changes

from ..corpus import tiny
from ..trainers import LORA


EVERY_STEP = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
SECRETS = (
    *("hub_token", "push_to_hub_token", "token", "use_auth_token", "auth_token", "access_token"),
    *("api_key", "api_token", "password", "secret"),
)


def read(folder) -> dict:
    return json.loads((folder / "training_settings.json").read_text())


def test_is_there_from_the_first_step(make_trainer, tmp_path):
    """With the settings that the run began with, also in checkpoints: callbacks may change some."""
    seen = []

    def reward(completions, **kwargs):
        seen.append(read(tmp_path / "run"))
        trainer.args.delta = 3.0
        return [float(i % 2) for i in range(len(completions))]

    secrets = dict.fromkeys(SECRETS, "hf_secret")
    options = {"token_credit_kwargs": {"lambda_max": 1.5}, "learning_rate": 2e-4}
    options |= {"hub_token": "hf_secret", "chat_template_kwargs": {"tools": secrets}}
    trainer = make_trainer(reward_funcs=[reward, reward], **options, **EVERY_STEP)
    trainer.recipe = {"reward_kwargs": {"code_reward": {**secrets, "max_new_tokens": 4, "judges": [secrets]}}}
    assert not (tmp_path / "run" / "training_settings.json").exists()
    trainer.train()
    record = seen[0]
    assert record == read(tmp_path / "run")
    assert record == read(tmp_path / "run" / "checkpoint-1")
    expected = {
        "rewards": [["reward", 1.0], ["reward", 1.0]],  # two of one name
        "rows": len(trainer.train_dataset),
        **{"processes": 1, "sharding": None, "adapter": None},
        # secrets go, by their names
        "recipe": {"reward_kwargs": {"code_reward": {"max_new_tokens": 4, "judges": [{}]}}},
    }
    assert {name: record[name] for name in expected} == expected
    assert "lambda_max=1.5" in record["token_credit"]
    arguments = record["arguments"]
    assert arguments["learning_rate"] == 2e-4
    assert arguments["epsilon_high"] == 0.28
    assert record["versions"]["delta_trl"] == __version__
    assert record["versions"].keys() > {"trl", "transformers", "torch", "datasets", "tokenizers"}
    text = json.dumps(record)
    assert "hf_secret" not in text
    assert tiny.dataset()["prompt"][0] not in text, "prompts are recorded as a hash"


def test_saving_arguments_changes_none_in_use():
    def source(**columns):
        """A local function, which cannot be pickled."""

    args = CreditArguments("given", {"source": source})
    saved = pickle.loads(pickle.dumps(args))
    assert saved.token_credit_kwargs == {"source": repr(source)}
    assert args.token_credit_kwargs == {"source": source}


def test_a_stream_has_no_number_of_rows(make_trainer):
    record = make_trainer(train_dataset=tiny.dataset().to_iterable_dataset()).settings()
    assert record["rows"] is record["prompts_sha256"] is None


def test_objects_without_a_text_are_the_same_in_every_process():
    assert as_json({"tools": [object()]}) == {"tools": ["<object object>"]}


def test_prompts_with_images_are_the_same_in_every_process(make_trainer):
    """Each reading of the data makes other objects of them."""
    content = [{"type": "image", "image": PIL.Image.new("RGB", (4, 4))}]
    part = {"type": Value("string"), "image": Image()}
    features = Features({"prompt": List({"role": Value("string"), "content": List(part)})})
    data = Dataset.from_dict({"prompt": [[tiny.message("user", content)]] * 16}, features)
    trainer = make_trainer(train_dataset=data)
    first = trainer.settings()["prompts_sha256"]
    images = data["prompt"][:]  # where those were in memory
    assert first == trainer.settings()["prompts_sha256"]
    assert len(images) == 16


def test_sets_are_recorded_in_order():
    """Python's own order of texts is another one in each process."""
    modules = [f"layer_{i:02}" for i in range(20)]
    assert as_json({"target_modules": set(modules)}) == {"target_modules": modules}


def assert_says(caplog, title: str, verb: str, parts: list[str]) -> None:
    """One message has the title; it says these parts, and nothing else."""
    [said] = [message for message in caplog.messages if title in message]
    for part in parts:
        assert part in said
    assert said.count(verb) == len(parts)


def test_what_changed_is_said_and_the_run_goes_on(make_trainer, tmp_path, caplog):
    """
    Another rule, learning rate, order of the data, and weight of a reward; nothing that stayed, as the adapter. What
    the checkpoint brings back is said to stay, and does.
    """
    options = {**EVERY_STEP, **LORA}
    make_trainer(**options).train()
    before = read(tmp_path / "run")
    (tmp_path / "run" / SETTINGS).unlink()  # the checkpoint's counts
    data = tiny.dataset()
    options |= {"max_steps": 2, "learning_rate": 1e-4, "weight_decay": 0.1, "save_steps": 2, "logging_steps": 2}
    options |= {"token_credit": "side_weights", "reward_weights": [0.5], "lr_scheduler_type": "constant"}
    changed = make_trainer(**options, train_dataset=data.select(range(len(data) - 1, -1, -1)))
    changed.train(resume_from_checkpoint=True)
    assert changed.state.global_step == 2
    changes = [
        "arguments.max_steps was 1 and is 2",
        "arguments.lr_scheduler_type was 'linear' and is 'constant'",
        "arguments.token_credit was 'delta' and is 'side_weights'",
        "arguments.reward_weights was None and is [0.5]",
        "and is 'SideWeights(",
        "rewards was [['reward_letters', 1.0]] and is [['reward_letters', 0.5]]",
        f"prompts_sha256 was '{before['prompts_sha256']}'",
    ]
    assert_says(caplog, "other settings", " was ", changes)
    what_stays = [
        "arguments.learning_rate stays 0.001, not 0.0001",
        "arguments.weight_decay stays 0.0, not 0.1",
        "arguments.logging_steps stays 1, not 2",
        "arguments.save_steps stays 1, not 2",
    ]
    assert_says(caplog, "brings back", " stays ", what_stays)
    groups = changed.optimizer.param_groups
    assert {group["lr"] for group in groups} == {0.001}  # the schedule is the new one
    assert {group["weight_decay"] for group in groups} == {0.0}
    assert (changed.state.logging_steps, changed.state.save_steps) == (1, 1)
    assert read(tmp_path / "run")["token_credit"].startswith("SideWeights(")


RESTORED = (
    *("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("logging_steps", "eval_steps", "save_steps"),
)


@pytest.mark.parametrize("adaptive", [False, True])
def test_each_change_is_said_with_its_effect(tmp_path, caplog, adaptive):
    """Nothing of what belongs to a single call. A checkpoint of `GRPOTrainer` has no record to compare with."""
    PartialState()  # for the logger

    def record(value) -> dict:
        names = (*RESTORED, "entropy_coef", "beta", "resume_from_checkpoint")
        arguments = {**dict.fromkeys(names, value), "use_adaptive_entropy": adaptive}
        return {**dict.fromkeys(("date", "call", "goes_on_from"), value), "arguments": arguments}

    warn_of_changes(tmp_path, record(2))
    write_json(record(2), tmp_path / SETTINGS)
    warn_of_changes(tmp_path, record(2))
    assert not caplog.text
    warn_of_changes(tmp_path, record(0))
    stays = [*RESTORED, *["entropy_coef"] * adaptive]
    changes = ["beta", *["entropy_coef"] * (not adaptive)]
    assert_says(caplog, "other settings", " was ", [f"arguments.{name} was 2 and is 0" for name in changes])
    assert_says(caplog, "brings back", " stays ", [f"arguments.{name} stays 2, not 0" for name in stays])
