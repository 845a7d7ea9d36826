"""The parser of commands whose mistakes are found before anything heavy is imported, TRL's parser included."""

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import NoReturn

from .errors import RecipeError


def unknown_options(given: Iterable[str], known: Iterable[str], command: str) -> RecipeError:
    """The error that names options which a command does not know, each with the nearest known one."""
    hints = []
    for option in given:
        near = difflib.get_close_matches(option.split("=")[0], sorted(known), n=1)
        hints.append(f"`{option}`" + (f" (did you mean `{near[0]}`?)" if near else ""))
    return RecipeError(f"Unknown option: {', '.join(hints)}. `{command} --help` lists the known ones.")


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
        raise unknown_options([arg for arg in rest if arg.startswith("-")] or rest, known, self.prog)

    def error(self, message: str) -> NoReturn:
        raise RecipeError(f"{self.prog.split()[-1]}: {message}")
