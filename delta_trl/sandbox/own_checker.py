"""
Checkers of users, which tests name: for problems with several right outputs.

A checker runs on the host, in the trainer's process and without limits. So it is a user's function, in the working
directory. Else a data set from anywhere could name `os.execl`, and hand it a program's output.
"""

import functools
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arguments.lookup import import_dotted


logger = logging.getLogger(__name__)


class CheckerError(ValueError):
    """A checker is none, or is wrong: the user's mistake, which ends a run."""


@dataclass(frozen=True)
class OwnChecker:
    """
    A user's checker. Rewards call it from several threads.

    Args:
        path (`str`): Its dotted path.
        function (`Callable`): From input, output and an output that is known to be right, to whether it is right.
    """

    path: str
    function: Callable[[str, str, str], bool]

    def accepts(self, stdin: str, output: bytes, expected: str) -> bool:
        """
        Whether it accepts what a program printed. An exception counts as no, and is logged: most often, a program
        printed what the checker cannot read. What is no text is wrong.
        """
        try:
            text = output.decode("utf-8")
        except UnicodeDecodeError:
            return False
        try:
            return bool(self.function(stdin, text, expected))
        except Exception as error:
            warn_of_exception(self.path, type(error).__name__)
            return False

    @functools.lru_cache(maxsize=4096)  # noqa: B019 (checkers live as long as the process)
    def check_itself(self, stdin: str, expected: str) -> None:
        """Raise [`CheckerError`] if it does not accept the expected output: then right programs would fail, too."""
        case = f"the input {stdin!r:.200} with the expected output {expected!r:.200}"
        try:
            accepted = self.function(stdin, expected, expected)
        except Exception as error:
            raise CheckerError(f"checker={self.path!r} raised {error!r} on {case}.") from error
        if not accepted:
            raise CheckerError(
                f"checker={self.path!r} does not accept {case}. It returns whether an output is right, from the "
                "input, the output and the expected one."
            )


@functools.cache  # once of each kind
def warn_of_exception(path: str, kind: str) -> None:
    problem = "The checker %r raised %s on the output of a program, which counts as wrong."
    logger.warning(problem, path, kind, exc_info=True)


@functools.cache
def find_checker(path: str) -> OwnChecker:
    """The checker that a dotted path names. Raises [`CheckerError`] if it is no function of the working directory."""
    folder = Path.cwd()
    name = path.partition(".")[0]
    places = (folder / name, folder / f"{name}.py")
    function: Any = None
    if any(place.exists() for place in places):
        try:
            function = inspect.unwrap(import_dotted("checker", path, ()))
        except ValueError as error:
            raise CheckerError(str(error)) from error
    source = Path(function.__code__.co_filename) if inspect.isfunction(function) else Path()
    if not any(source.is_relative_to(place) for place in places):
        raise CheckerError(
            f"checker={path!r}: expected a function that is defined in a module of {folder}. It runs outside of the "
            "sandbox, and a data set must not choose whose code."
        )
    return OwnChecker(path, function)
