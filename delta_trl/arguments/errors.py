"""The errors with which every command ends in one line, in a module that imports nothing heavy."""

import os
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


OURS = f"{Path(__file__).parents[1]}{os.sep}"
LIBRARIES = (OURS, f"{sysconfig.get_path('stdlib')}{os.sep}", "<frozen")
PACKAGES = ("site-packages", "dist-packages")


class UsageError(ValueError):
    """A mistake in a recipe, on the command line or in the data. A command prints it without a traceback."""


@contextmanager
def mistakes() -> Iterator[None]:
    """Raise `UsageError` for what libraries raise if data, models or options are missing or do not fit."""
    import yaml  # which rewards by themselves do without

    try:
        yield
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, yaml.YAMLError) as error:
        raise UsageError(in_users_code(error) or str(error)) from error


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """
    The context in which code of the user's is called. What it raises gets a note, and in commands the place in that
    code, see [`in_users_code`].

    Args:
        what (`str`): Whose error it is: "The reward function 'mine' raised this on ...".
    """
    try:
        yield
    except Exception as error:
        error.add_note(what)
        if place := users_line(error):
            name_users_code(error, f"{type(error).__name__}: {error}\n  {place}\n{what}")
        raise


def name_users_code(error: Exception, message: str) -> Exception:
    """The error, of which a command says this message in place of a traceback."""
    error.in_users_code = message  # type: ignore[attr-defined]
    return error


def in_users_code(error: Exception) -> str:
    """What a command says of an error that code of the user's raised; empty for any other one."""
    return getattr(error, "in_users_code", "")


def users_line(error: Exception) -> str:
    """The last line, of neither a library nor this package, that an error went through; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {(error.text or '').strip()}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_library = frame.filename.startswith(LIBRARIES) or any(part in frame.filename for part in PACKAGES)
        if not is_library:
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}"
    return ""
