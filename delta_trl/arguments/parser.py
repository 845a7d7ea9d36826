"""Arguments of the commands: a YAML file and command-line flags over it, with every mistake named."""

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError

import yaml
from trl import TrlParser

from .command_line import unknown_options
from .errors import RecipeError
from .recipe_file import read_recipe


def read_mappings(arguments, *names: str) -> None:
    """Make these fields dicts, which on the command line are YAML texts. Raises `RecipeError` for other values."""
    for name in names:
        value = getattr(arguments, name)
        value = yaml.safe_load(value) if isinstance(value, str) else value
        if value is not None and not isinstance(value, dict):
            raise RecipeError(f"{name}={value!r}: expected a mapping.")
        setattr(arguments, name, value or {})


class CheckedArguments:
    """A base of the arguments of a command, with what their checks share."""

    def require(self, *names: str) -> None:
        """Raise `RecipeError` for an argument that is not given."""
        for name in names:
            if not getattr(self, name):
                raise RecipeError(f"`{name}` is missing: set it as --{name}.")

    def make_lists(self, *names: str) -> None:
        """Make lists of arguments that are a single text, as in a YAML file."""
        for name in names:
            if isinstance(getattr(self, name), str):
                setattr(self, name, [getattr(self, name)])

    def expect(self, name: str, valid: bool, expected: str) -> None:
        """Raise `RecipeError` for an argument that is not valid."""
        if not valid:
            raise RecipeError(f"{name}={getattr(self, name)}: expected {expected}.")


class StrictParser(TrlParser):
    """`TrlParser` that refuses unknown keys with the nearest known one, and reports mistakes in a line."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def parse(self, args: Iterable[str]) -> tuple:
        """
        Parse `--config FILE.yaml` and flags, which win.

        Raises:
            RecipeError: On an unreadable file, an unknown key or flag, or a value that does not fit.
        """
        args = [word for arg in args for word in (arg.split("=", 1) if arg.startswith("--config=") else [arg])]
        if args[-1:] == ["--config"]:
            raise RecipeError("--config: expected the path of a recipe.")
        if "--config" in args:
            read_recipe(args[args.index("--config") + 1])  # of which `TrlParser` finds less wrong
        try:
            *arguments, remaining = self.parse_args_and_config(args, return_remaining_strings=True)
        except PackageNotFoundError as error:
            quoted = re.search(r"'([\w-]+)", error.name)  # transformers puts a sentence there
            package = quoted[1] if quoted else error.name
            raise RecipeError(f"An option needs {package}, which is not installed: pip install {package}") from error
        except (ValueError, TypeError, ImportError) as error:
            raise RecipeError(str(error)) from error
        if remaining:
            flags = {flag for action in self._actions for flag in action.option_strings}
            raise unknown_options([arg for arg in remaining if arg.startswith("--")] or remaining, flags, self.command)
        return tuple(arguments)

    def error(self, message: str):
        raise RecipeError(message)

    def set_defaults_with_config(self, **config) -> list[str]:
        known = {action.dest for action in self._actions}
        if unknown := [key for key in config if key not in known]:
            raise unknown_options(unknown, known, self.command)
        return super().set_defaults_with_config(**config)
