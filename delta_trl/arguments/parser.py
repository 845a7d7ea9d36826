"""Arguments of the commands as dataclasses: names are checked, types converted."""

import dataclasses
import inspect
import re
from argparse import Action
from importlib.metadata import PackageNotFoundError
from types import MappingProxyType
from typing import Any

import yaml
from trl import TrlParser

from .command_line import CommandParser
from .errors import UsageError
from .options import Options


OPTION = re.compile(r"^    ([\w, ]+?)(?: \(.*?\))?:(.*(?:\n {8}.*)*)", re.MULTILINE)
LINK = re.compile(r"\[`~?(?:\w+\.)*(\w+)`\]")


def documented(arguments: type) -> type:
    """Decorates a dataclass: what its docstring says of an option is the option's help on the command line."""
    for names, text in OPTION.findall(inspect.getdoc(arguments)):
        for option in dataclasses.fields(arguments):
            if option.name in names.split(", "):
                described = LINK.sub(r"\1", " ".join(text.split())).replace("%", "%%")
                option.metadata = MappingProxyType({**option.metadata, "help": described})
    return arguments


def read_mappings(arguments, *names: str) -> None:
    """Convert fields to dicts: on the command line, they are YAML texts. Raises `UsageError` for other values."""
    for name in names:
        value = getattr(arguments, name)
        try:
            value = yaml.safe_load(value) if isinstance(value, str) else value
        except yaml.YAMLError:
            pass  # a text that is no mapping
        if value is not None and not isinstance(value, dict):
            raise UsageError(f"{name}={value!r}: expected a mapping.")
        setattr(arguments, name, value or {})


class StrictParser(CommandParser, TrlParser):
    """
    Converts options to dataclasses. The command line overrides the recipe, which overrides the defaults. Values are
    converted by `trl.TrlParser`: `none` means `None` for a number.
    """

    def parse(self, options: Options) -> tuple:
        """
        The dataclasses with the values of these options.

        Raises:
            UsageError: On an unknown option, or a value that does not fit.
        """
        keys = {action.dest for action in self._actions}
        flags = {flag for action in self._actions for flag in action.option_strings}
        unknown = [str(key) for key in options.recipe if key not in keys]
        unknown += [f"--{name}" for name in options.flags if f"--{name}" not in flags]
        if unknown:
            self.refuse(unknown)
        for action in self._actions:
            _check_value(action, options.recipe.get(action.dest))
        self.set_defaults(**options.recipe)
        try:
            *arguments, rest = self.parse_args_into_dataclasses(
                options.words, return_remaining_strings=True, look_for_args_file=False
            )
        except PackageNotFoundError as error:
            quoted = re.search(r"'([\w-]+)", error.name)  # transformers puts a sentence into the name
            package = quoted[1] if quoted else error.name
            raise UsageError(f"An option needs {package}, which is not installed: pip install {package}") from error
        except (ValueError, TypeError, ImportError) as error:
            raise UsageError(str(error)) from error
        if rest:
            self.refuse(rest)
        return tuple(arguments)


def _check_value(action: Action, value: Any) -> None:
    """Raise `UsageError` for a value of a recipe that the command line would refuse: argparse checks only words."""
    if action.choices and isinstance(value, str) and value not in action.choices:
        raise UsageError(f"{action.dest}={value!r}: expected one of {', '.join(map(repr, action.choices))}.")
    if isinstance(value, float) and callable(action.type):
        try:
            action.type(str(value))
        except ValueError as error:
            raise UsageError(f"{action.dest}={value!r}: expected a whole number.") from error
