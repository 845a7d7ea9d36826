"""The record of what a run was started with."""

import json

import pytest
from trl import GRPOConfig

from delta_trl import __version__
from delta_trl.credit import DelTA, Selected, TokenCredit
from delta_trl.settings import _open, settings_of


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
        (type("Mine", (TokenCredit,), {})(), "Mine()", []),
    ],
)
def test_rules(make_trainer, rule, name, changed):
    record = settings_of(make_trainer(config_class=GRPOConfig, trainer_options={"token_credit": rule}))["token_credit"]
    assert (record["rule"], record["changed"]) == (name, changed)
    json.dumps(record)


def test_secrets_are_left_out(make_trainer, tmp_path):
    nested = {"model_init_kwargs": {"token": "hf_1", "api_key": "2", "revision": "main"}, "hub_token": "3", "a_key": 4}
    assert _open(nested) == {"model_init_kwargs": {"revision": "main"}}
    make_trainer(hub_token="hf_secret").train()
    assert "hf_secret" not in (tmp_path / "run" / "training_settings.json").read_text()
    assert read(tmp_path)["arguments"]["max_completion_length"] > 0  # "length" is no secret
