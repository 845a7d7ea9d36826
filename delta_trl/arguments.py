"""Arguments of the commands: a YAML file and command-line flags over it, with every mistake named."""

import difflib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError

import yaml
from trl import TrlParser

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
        args = list(args)
        if args[-1:] == ["--config"]:
            raise RecipeError("--config: expected the path of a recipe.")
        if "--config" in args:
            read_recipe(args[args.index("--config") + 1])  # of which `TrlParser` finds less wrong
        try:
            *arguments, remaining = self.parse_args_and_config(args, return_remaining_strings=True)
        except PackageNotFoundError as error:
            raise RecipeError(f"These options need {error.name}, which is not installed.") from error
        except (ValueError, TypeError, ImportError) as error:
            raise RecipeError(str(error)) from error
        if remaining:
            self._unknown([arg for arg in remaining if arg.startswith("--")] or remaining)
        return tuple(arguments)

    def error(self, message: str):
        raise RecipeError(message)

    def set_defaults_with_config(self, **config) -> list[str]:
        known = {action.dest for action in self._actions}
        self._unknown([key for key in config if key not in known])
        return super().set_defaults_with_config(**config)

    def _unknown(self, keys: list[str]):
        if not keys:
            return
        known = sorted({action.dest for action in self._actions})
        hints = []
        for key in keys:
            near = difflib.get_close_matches(key.lstrip("-").split("=")[0], known, n=1)
            hints.append(f"`{key}`" + (f" (did you mean `{near[0]}`?)" if near else ""))
        raise RecipeError(f"Unknown option: {', '.join(hints)}. `{self.command} --help` lists the known ones.")
