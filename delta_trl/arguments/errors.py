"""The error of every command, in a module that imports nothing heavy."""

from collections.abc import Iterator
from contextlib import contextmanager

import yaml


class UsageError(ValueError):
    """A mistake in a recipe, on the command line or in the data. A command prints it without a traceback."""


@contextmanager
def mistakes() -> Iterator[None]:
    """Raise `UsageError` for what libraries raise if data, models or options are missing or do not fit."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, yaml.YAMLError) as error:
        raise UsageError(str(error)) from error
