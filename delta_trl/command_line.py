"""The parser of commands whose mistakes are found before anything heavy is imported, TRL's parser included."""

import argparse
import difflib
from collections.abc import Sequence
from typing import NoReturn

from .errors import RecipeError


class CommandParser(argparse.ArgumentParser):
    """`argparse`'s, with mistakes as `RecipeError`, and an unknown option named with the nearest known one."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def parse(self, args: Sequence[str]) -> argparse.Namespace:
        """Like `parse_args`. Raises `RecipeError` for an unknown option or a value that does not fit."""
        options, rest = self.parse_known_args(args)
        if not rest:
            return options
        known = [flag for action in self._actions for flag in action.option_strings]
        hints = []
        for given in [arg for arg in rest if arg.startswith("-")] or rest:
            near = difflib.get_close_matches(given.split("=")[0], known, n=1)
            hints.append(f"`{given}`" + (f" (did you mean `{near[0]}`?)" if near else ""))
        raise RecipeError(f"Unknown option: {', '.join(hints)}. `{self.prog} --help` lists the known ones.")

    def error(self, message: str) -> NoReturn:
        raise RecipeError(f"{self.prog.split()[-1]}: {message}")
