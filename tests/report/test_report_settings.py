"""Settings as the report shows them."""

import json

import pytest

from delta_trl.cli import main
from delta_trl.report import read_run, write_report
from delta_trl.report.settings import differing, main_settings

from . import runs


def record(**changes) -> dict:
    """As training writes it, in short."""
    settings = {
        "model": "Qwen/Qwen3-0.6B",
        "dataset": "data.jsonl",
        "rows": 3584,
        "rewards": {"math_reward": 1.0, "short": 0.5},
        "token_credit": {
            "rule": "DelTA",
            "options": {"lambda_min": 0.8, "lambda_max": 1.5},
            "changed": ["lambda_max"],
        },
        "processes": 2,
        "device": "cuda",
        "arguments": {
            "output_dir": "a", "learning_rate": 1e-6, "lr_scheduler_type": "constant", "seed": 3, "loss_type": "dapo",
            "epsilon": 0.2, "epsilon_high": None, "beta": 0.0, "generation_batch_size": 256, "num_generations": 8,
            "max_completion_length": 1024, "temperature": 1.0, "top_p": 1.0, "max_steps": 200, "num_train_epochs": 3,
        },
        "recipe": {"prompt_template": None, "dataset_name": "data.jsonl"},
        "versions": {"delta_trl": "0.1", "trl": "1.16.0"},
    }  # fmt: skip
    for name, value in changes.items():
        part = next((p for p in (settings["arguments"], settings["recipe"]) if name in p), settings)
        part[name] = value
    return settings


def write(path, settings, **options):
    runs.write_run(path, **options)
    (path / "training_settings.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
    return read_run(path)


def test_main_settings():
    shown = main_settings(record())
    assert shown["model"] == "Qwen/Qwen3-0.6B"
    assert shown["data"] == "data.jsonl, 3,584 rows"
    assert shown["rewards"] == "math_reward, 0.5 × short"
    assert shown["token credit"] == "DelTA, lambda_max=1.5"
    assert shown["learning rate"] == "1e-06, constant"
    assert shown["loss"] == "dapo, clipped at 0.2 and 0.2, beta 0"
    assert shown["seed"] == "3"
    assert shown["versions"] == "delta_trl 0.1, trl 1.16.0"
    assert main_settings({}) == {}  # of a file that says nothing of this
    assert main_settings({"token_credit": {"rule": "none", "options": {}}}) == {"token credit": "none"}


def test_differing(tmp_path):
    one = write(tmp_path / "one", record())
    two = write(tmp_path / "two", record(output_dir="b", learning_rate=2e-6, seed=4, prompt_template="Q: {prompt}"))
    assert differing([one, two]) == [
        {"name": "learning_rate", "values": ["1e-06", "2e-06"]},
        {"name": "seed", "values": ["3", "4"]},
        {"name": "prompt_template", "values": ["None", "Q: {prompt}"]},
    ]
    options = {"lambda_min": 0.9, "lambda_max": 1.5}
    other = write(tmp_path / "two", record(token_credit={"rule": "DelTA", "options": options}))
    assert differing([one, other]) == [{"name": "lambda_min", "values": ["0.8", "0.9"]}]
    plain = write(tmp_path / "two", record(token_credit={"rule": "none", "options": {}, "changed": []}))
    assert differing([one, plain]) == [{"name": "token credit", "values": ["DelTA, lambda_max=1.5", "none"]}]
    assert differing([one]) is None
    assert differing([one, read_run(runs.write_run(tmp_path / "old"))]) is None


@pytest.mark.parametrize("text", ["{", "[]", "\udcff"])
def test_a_broken_record_is_named(tmp_path, capsys, text):
    runs.write_run(tmp_path / "run")
    file = tmp_path / "run" / "training_settings.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main(["inspect", str(tmp_path / "run")]) == 2
    assert f"{file}: not a record of settings" in capsys.readouterr().err


def test_on_the_page(tmp_path):
    hostile = "<script>alert(1)</script>\u202e"
    write(tmp_path / "one", record(model=hostile, recipe={"system_prompt": hostile}))
    write(tmp_path / "two", record(seed=4))
    html = write_report([tmp_path / "one", tmp_path / "two"], tmp_path / "two.html").read_text()
    assert "<script>alert" not in html
    assert "\u202e" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩") == 3  # in the strip, and twice as differing
    assert '<th scope="row">seed</th><td><bdi>3</bdi></td><td><bdi>4</bdi></td>' in html
    html = write_report([runs.write_run(tmp_path / "old")], tmp_path / "old.html").read_text()
    assert "Its settings were not recorded" in html
