"""Command lines and recipes are read by `trl.TrlParser`; what is unknown gets the name of what is meant."""

from dataclasses import dataclass

import pytest
from trl import ModelConfig

from delta_trl.arguments.credit import CreditArguments
from delta_trl.arguments.errors import UsageError
from delta_trl.arguments.parser import MEANT, documented, parse, read_mappings
from delta_trl.audit.arguments import AuditArguments
from delta_trl.commands.arguments import CompareArguments, ExplainArguments
from delta_trl.commands.compare import RecipeConfig
from delta_trl.commands.recipe import RunArguments
from delta_trl.evaluation.arguments import EvalArguments
from delta_trl.evaluation.model import ModelArguments

from ..documented import defaults


@documented
@dataclass
class Own:
    """
    Options.

    Args:
        size, width (`int`): How large, in %, as in [`~trl.trainer.GRPOConfig`] or [`Own`].
        options (`dict`, *optional*): More of them.
    """

    size: int
    options: dict | str | None = None
    width: int = 0
    option: int = 0  # without a word on it

    def __post_init__(self):
        read_mappings(self, "options")


def test_the_command_line_overrides_the_file(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("size: 3\noptions: {a: 1}\n")
    (of_file,) = parse([Own], [f"--config={file}"], "x")
    assert of_file == Own(3, {"a": 1})
    words = ["--config", str(file), "--size", "4", "--options", "{b: [2]}"]
    (changed,) = parse([Own], words, "x")
    assert changed == Own(4, {"b": [2]})
    (without_braces,) = parse([Own], ["--size", "4", "--options", "b: 2"], "x")
    assert without_braces == Own(4, {"b": 2})
    (empty,) = parse([Own], [*words[:4], "--options", "null"], "x")
    assert empty.options == {}


def test_a_key_may_stand_again_within_another(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("size: 3\noptions:\n  size: 4\n  more:\n    size: 5\n")
    (options,) = parse([Own], ["--config", str(file)], "x")
    assert options == Own(3, {"size": 4, "more": {"size": 5}})


def test_a_file_may_give_one_name_for_a_list(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("dataset_name: data\nreward_funcs: math_reward\ntools: my_tools.search\n")
    (options,) = parse([RunArguments], ["--config", str(file)], "x")
    assert options.reward_funcs == ["math_reward"]
    assert options.tools == ["my_tools.search"]


def test_help_is_that_of_the_docstring(capsys):
    with pytest.raises(SystemExit):
        parse([Own], ["--help"], "x")
    printed = capsys.readouterr().out
    assert printed.count("How large, in %, as in GRPOConfig or Own.") == 2
    assert printed.count("More of them.") == 1


ARGUMENTS = (
    *(AuditArguments, EvalArguments, ExplainArguments, ModelArguments),
    *(RunArguments, CreditArguments, CompareArguments),
)


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_defaults_are_those_of_the_docstring(arguments):
    said, real = defaults(arguments)
    assert said
    assert said == real


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lora_alhpa", "lora_alpha"),
        ("lora_alph", "lora_alpha"),  # an abbreviation to argparse
    ],
)
def test_unknown_options_name_what_is_meant(name, meant, tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(f"{name}: 4")
    for words in (f"--{name}=4", f"--{name} 4", f"--config {file}"):
        with pytest.raises(UsageError, match=rf"^Unknown option: `{name}` \(did you mean '{meant}'\?\)\.$"):
            parse([ModelConfig], words.split(), "x")


def test_options_of_other_trainers_name_those_of_a_recipe():
    words = ["--dataset_name", "data", "--reward_funcs", "math_reward", *(f"--{name}=1" for name in MEANT)]
    with pytest.raises(UsageError) as error:
        parse([RunArguments, RecipeConfig, ModelConfig], words, "x")
    for name, meant in MEANT.items():
        assert f"`{name}` (did you mean '{meant}'?)" in str(error.value)


def test_all_options_that_a_file_misspells_are_named(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("sise: 3\nwdith: 4")
    with pytest.raises(UsageError, match=r"`sise` .did you mean 'size'.*`wdith` .did you mean 'width'"):
        parse([Own], ["--config", str(file)], "x")


@pytest.mark.parametrize(
    "words",
    [
        ["word"],
        ["--size", "3", "word"],
        ["--size", "3", "--options", "word"],
        ["--config"],
    ],
)
def test_words_that_fit_nowhere_are_refused(words):
    with pytest.raises((UsageError, SystemExit)):
        parse([Own], words, "x")


@pytest.mark.parametrize("text", ["a: [1", "- a", None])
def test_a_file_that_cannot_be_read(tmp_path, text):
    path = tmp_path / "own.yaml"
    if text:
        path.write_text(text)
    with pytest.raises(UsageError):
        parse([Own], ["--size", "3", "--config", str(path)], "x")
