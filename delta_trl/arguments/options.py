"""
The options of a call, read once: the command line, and the recipe that `--config` names. Types are not known yet.
Imports nothing heavy, so that mistakes are found at once.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .errors import UsageError


@dataclass(frozen=True)
class Options:
    """
    The options of a call.

    Args:
        recipe (`dict[str, Any]`): The keys of the recipe, empty without one.
        flags (`dict[str, list[str]]`): By the option's name, the words that follow it on the command line.
    """

    recipe: dict[str, Any]
    flags: dict[str, list[str]]

    @property
    def values(self) -> dict[str, Any]:
        """The recipe's values, overridden by the command line's; an option without a word is `True`."""
        return {**self.recipe, **{name: _value(words) for name, words in self.flags.items()}}

    @property
    def words(self) -> list[str]:
        """The command line, for `argparse`. Written as `--name=word`, a word may begin with a dash."""
        return [
            word
            for name, words in self.flags.items()
            for word in ([f"--{name}={words[0]}"] if len(words) == 1 else [f"--{name}", *words])
        ]


def read_options(args: Iterable[str]) -> Options:
    """
    Read a command line and its recipe. The recipe's `env` sets environment variables, as in TRL.

    Args:
        args (`Iterable[str]`): `--name value …` or `--name=value`, with dashes or underscores in the name. Of two
            equal names the last one counts.

    Raises:
        UsageError: If a word belongs to no option, or the recipe cannot be read.
    """
    flags: dict[str, list[str]] = {}
    words: list[str] | None = None
    for arg in args:
        if arg.startswith("--") or arg == "-h":
            name, has_value, value = arg.removeprefix("--").partition("=")
            words = flags["help" if arg == "-h" else name.replace("-", "_")] = [at_home(value)] if has_value else []
        elif words is None:
            recipe = arg if arg.endswith((".yaml", ".yml")) else "RECIPE.yaml"
            raise UsageError(f"{arg!r} belongs to no option: expected --config {recipe} or --option value.")
        else:
            words.append(at_home(arg))
    if "config" not in flags:
        return Options({}, flags)
    path = flags.pop("config")
    if len(path) != 1:
        raise UsageError(f"--config: expected the path of one recipe, got {' '.join(path) or 'none'}.")
    recipe = read_recipe(path[0])
    variables = recipe.pop("env", {})
    if not isinstance(variables, dict):
        raise UsageError(f"env={variables!r}: expected a mapping of environment variables.")
    os.environ.update({name: str(value) for name, value in variables.items()})
    return Options({name: at_home(value) for name, value in recipe.items()}, flags)


def at_home(value: Any) -> Any:
    """An option's value; `~/` at the start of a path is the home directory, which no shell replaces in a recipe."""
    return os.path.expanduser(value) if isinstance(value, str) and value.startswith("~/") else value


def _value(words: list[str]) -> bool | str | list[str]:
    return True if not words else words[0] if len(words) == 1 else words


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys in a mapping. YAML's own loader keeps the last one."""

    def construct_mapping(self, node, deep=False):
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                continue  # YAML's own loader handles these
            key, line = self.construct_object(key_node), key_node.start_mark.line + 1
            if key in seen:
                raise UsageError(f"`{key}` is set twice, in lines {seen[key]} and {line} of the recipe.")
            seen[key] = line
        return super().construct_mapping(node, deep)


def read_recipe(path: str | Path) -> dict[str, Any]:
    """The keys of a YAML file. Raises `UsageError` if it cannot be read, or is no mapping of distinct keys."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"--config: no such file: {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config: the recipe cannot be read: {error}") from error
    try:
        recipe = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise UsageError(f"The recipe {path} is not valid YAML: {error}") from error
    if not isinstance(recipe, dict):
        raise UsageError(f"The recipe {path} holds {type(recipe).__name__}, expected a YAML mapping of options.")
    return recipe


def is_true(value: object) -> bool:
    """Whether an option's value means yes, as in transformers' parser."""
    return str(value).lower() in ("true", "yes", "t", "y", "1")


def is_given(value: object) -> bool:
    """Whether an option's value is set and does not mean no."""
    return value is not None and str(value).lower() not in ("false", "no", "f", "n", "0", "none")
