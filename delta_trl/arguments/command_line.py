"""The parser of all commands. Imports nothing heavy, so that mistakes are found at once."""

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from .errors import UsageError


class CommandParser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` that raises `UsageError`, and suggests the nearest known option for an unknown one."""

    def __init__(self, *args, **options):
        super().__init__(*args, allow_abbrev=False, **options)

    def read(self, args: Sequence[str]) -> argparse.Namespace:
        """
        Like `parse_args`; names of options may have dashes or underscores.

        Raises:
            UsageError: For an unknown option, or a value that does not fit.
        """
        args = [re.sub(r"^--[^=]+", lambda name: "--" + name[0][2:].replace("-", "_"), arg) for arg in args]
        options, rest = self.parse_known_args(args)
        if rest:
            self.refuse([arg.split("=")[0] for arg in rest if arg.startswith("-")] or rest)
        return options

    def refuse(self, unknown: Iterable[str]) -> NoReturn:
        """Raise `UsageError` that names unknown options, `--name` or keys of a recipe, each with the nearest one."""
        flags = [flag for action in self._actions for flag in action.option_strings]
        hints = []
        for option in unknown:
            known = flags if option.startswith("-") else [action.dest for action in self._actions]
            near = difflib.get_close_matches(option, known, n=1)
            hints.append(f"`{option}`" + (f" (did you mean `{near[0]}`?)" if near else ""))
        raise UsageError(f"Unknown option: {', '.join(hints)}. `{self.prog} --help` lists the known ones.")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.split()[-1]}: {message}")
