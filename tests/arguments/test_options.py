"""A call's options are read once, with the same result as `trl.TrlParser`."""

import os

import pytest
import yaml
from trl import GRPOConfig, ModelConfig, ScriptArguments, TrlParser

from delta_trl.arguments.errors import UsageError
from delta_trl.arguments.options import read_options, read_recipe
from delta_trl.arguments.parser import StrictParser


KINDS = [ScriptArguments, GRPOConfig, ModelConfig]
RECIPE = {
    "learning_rate": "1e-4",  # a text to YAML
    "bf16": False,
    "use_cpu": True,
    "output_dir": "out",
    "reward_weights": [1, 0.5],
    "model_init_kwargs": {"a": {"b": 1}},
    "lora_target_modules": ["q_proj"],
    "epsilon_high": None,
    "env": {"OF_A_RECIPE": 3},
}


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--learning_rate 3e-5 --use_peft",
        "--epsilon_high none --eval_steps=Null --report_to none",
        "--learning-rate=-3e-5 --use_peft false",
        "--max_steps -1 --max_steps 4",
        "--reward_weights 2 3 --lora_target_modules a b",
        "--lora_target_modules=a --no_dataloader_pin_memory",
        "--model_init_kwargs {} --run_name=",
        '--generation_kwargs {"top_k":1} --report_to none --no-dataloader-pin-memory',
    ],
)
def test_as_trl_reads_it(tmp_path, monkeypatch, flags):
    monkeypatch.delenv("OF_A_RECIPE", raising=False)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    words = ["--config", str(path), *flags.split()]
    expected = TrlParser(KINDS).parse_args_and_config(words)
    monkeypatch.delenv("OF_A_RECIPE")
    assert list(map(repr, StrictParser(KINDS).parse(read_options(words)))) == list(map(repr, expected))
    assert os.environ["OF_A_RECIPE"] == "3"


def test_values_before_their_types_are_known(tmp_path):
    (tmp_path / "recipe.yaml").write_text("a: 1\nb: [2]\nc: x\n")
    options = read_options(["--b", "3", "4", f"--config={tmp_path / 'recipe.yaml'}", "--d", "--e-f=-1", "--c", "y"])
    assert options.values == {"a": 1, "b": ["3", "4"], "c": "y", "d": True, "e_f": "-1"}


@pytest.mark.parametrize("words", [["recipe.yaml"], ["--config"], ["--config", "a.yaml", "b.yaml"]])
def test_words_without_an_option(words):
    with pytest.raises(UsageError):
        read_options(words)


def test_what_yaml_can_do_is_not_refused(tmp_path):
    (tmp_path / "merged.yaml").write_text("base: &base {a: 1, b: 2}\nmore:\n  <<: *base\n  a: 3\n")
    assert read_recipe(tmp_path / "merged.yaml")["more"] == {"a": 3, "b": 2}
