"""Arguments of the commands as dataclasses, which `trl.TrlParser` reads. Imports nothing heavy."""

import argparse
import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_type_hints

import yaml
from trl import TrlParser

from .errors import UsageError, mistakes
from .lookup import nearest
from .values import check_options


if TYPE_CHECKING:
    Mapping = dict[str, Any]
else:
    Mapping = dict[str, Any] | str | None  # as a command line, YAML or Python give it, until `read_mappings`
OPTION = re.compile(r"^    ([\w, ]+?)(?: \(.*?\))?:(.*(?:\n {8}.*)*)", re.MULTILINE)
TOP_LEVEL_KEY = re.compile(r"^(\w+):", re.MULTILINE)
LINK = re.compile(r"\[`~?(?:\w+\.)*(\w+)`\]")
# What people write, from other trainers and earlier versions, and the option for it
MEANT = {
    "model": "model_name_or_path",
    "base_model": "model_name_or_path",
    "torch_dtype": "dtype",
    "datasets": "dataset_name",
    "rewards": "reward_funcs",
    "lr": "learning_rate",
    "epochs": "num_train_epochs",
    "batch_size": "per_device_train_batch_size",
    "max_new_tokens": "max_completion_length",
    "max_seq_length": "max_completion_length",
    "use_lora": "use_peft",
    "lora": "use_peft",
    "split": "dataset_train_split",
    "output": "output_dir",
    "dataset_prompt_column": "column_mapping",
}


class Parser(TrlParser):
    """TRL's, which also checks a file's values: argparse reads only those of the command line."""

    def set_defaults_with_config(self, **config: Any) -> list[str]:
        for kind in self.dataclass_types:
            hints = get_type_hints(kind)
            for name in hints.keys() & config:
                value = config[name]
                hint = str(hints[name])
                is_empty = value is None and not re.search("None|Optional", hint)
                is_list = isinstance(value, list) and "list" not in hint.lower()
                if is_empty or is_list:
                    raise UsageError(f"{name}={value}: expected one value.")
                if isinstance(value, str) and hint.startswith("list"):
                    config[name] = [value]
        self.refuse(super().set_defaults_with_config(**config))  # before argparse misses an option that is misspelt
        return []

    def refuse(self, words: list[str]) -> None:
        """Raise `UsageError` if there are words that no option takes, and name the options that are meant."""
        option_names = {action.dest for action in self._actions}
        unknown = [_named(word, option_names) for word in words if word.startswith("--")]  # without their values
        if unknown:
            raise UsageError(f"Unknown option: {', '.join(unknown)}.")
        if words:
            raise UsageError(f"Unexpected words: {' '.join(words)}. The option before them takes one value.")


def parse(kinds: Sequence[type], args: Sequence[str], prog: str) -> tuple:
    """
    The dataclasses with the values of a command line. `--config` names a YAML file with the same options.

    Args:
        kinds (`Sequence[type]`): The dataclasses.
        args (`Sequence[str]`): The words of the command line, which override the file.
        prog (`str`): The command, such as `"delta-trl eval"`.

    Raises:
        UsageError: On an unknown option, or a value that a dataclass refuses.
        SystemExit: On a value that `argparse` refuses, and after `--help`.
    """
    usage = f"{prog} [--config FILE.yaml] [--option value ...]"
    parser = Parser(kinds, prog=prog, usage=usage, allow_abbrev=False)
    for action in parser._actions:
        if action.dest.endswith("_kwargs"):
            action.type = as_mapping
    file = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    file.add_argument("--config")
    config_flag, words = file.parse_known_args(args)
    if words and Path(words[0]).suffix in (".yaml", ".yml"):
        parser.error(f"{words[0]} stands alone: name a recipe as --config {words[0]}")
    with mistakes():
        if config_flag.config:
            _check_file(config_flag.config)
            words += ["--config", config_flag.config]  # TRL's parser knows no `--config=FILE.yaml`
        *arguments, rest = parser.parse_args_and_config(words, return_remaining_strings=True)
        for options in arguments:
            check_options(options)
    parser.refuse(rest)
    return tuple(arguments)


def _check_file(path: str) -> None:
    """
    Raise `UsageError` for a file that is no YAML, and for a key that stands there twice. YAML's reader would take the
    last one.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read as YAML: {error}") from error
    for key, count in Counter(TOP_LEVEL_KEY.findall(text)).items():
        if count > 1:
            raise UsageError(f"{path}: the key {key!r} stands there {count} times. Keep one.")


def _named(word: str, option_names: set[str]) -> str:
    """An unknown option, with the one that is meant."""
    name = word.removeprefix("--").partition("=")[0].replace("-", "_")
    return f"`{name}`{nearest(MEANT.get(name, name), option_names)}"


def documented(arguments: type) -> type:
    """Decorates a dataclass: what its docstring says of an option is the option's help on the command line."""
    for names, text in OPTION.findall(inspect.getdoc(arguments) or ""):
        described = LINK.sub(r"\1", " ".join(text.split()))
        described = described.replace("%", "%%")
        for option in dataclasses.fields(arguments):
            if option.name in names.split(", "):
                option.metadata = MappingProxyType({**option.metadata, "help": described})
    return arguments


def as_mapping(text: str) -> dict:
    """A mapping from its YAML. TRL would take some texts for JSON, and others for a mapping, long after."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a mapping, such as {{key: value}}")
    return value


def read_mappings(arguments: Any, *names: str) -> None:
    """Convert fields to dicts: on the command line, they are YAML texts. Raises `UsageError` for other values."""
    for name in names:
        value = getattr(arguments, name)
        if isinstance(value, str):
            try:
                value = yaml.safe_load(value)
            except yaml.YAMLError:
                pass  # a text that is no mapping
        if value is not None and not isinstance(value, dict):
            raise UsageError(f"{name}={value!r}: expected a mapping.")
        setattr(arguments, name, value or {})
