"""Whose code runs: that of TRL and of this package, or anybody else's."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trl
from trl import GRPOTrainer


OURS = tuple(f"{folder}{os.sep}" for folder in (Path(trl.__file__).parent, Path(__file__).parents[1]))


def code_of(function: Callable) -> list[Any]:
    """
    What a callable runs: its code, then that of each function that it wraps (`functools.wraps`). A callable without
    code, as a `functools.partial`, stands for itself.
    """
    links = []
    while function is not None:
        links.append(getattr(function, "__code__", function))
        function = getattr(function, "__wrapped__", None)
    return links


def is_foreign(function: Callable) -> bool:
    """Whether a callable, or one that it wraps, is of neither TRL nor this package."""
    return any(not getattr(link, "co_filename", "").startswith(OURS) for link in code_of(function))


def runs_foreign_code(trainer: GRPOTrainer, names: set[str]) -> bool:
    """Whether one of these methods is overridden in a subclass, wrapped on the instance, or patched on a class."""
    classes = type(trainer).__mro__
    of_trl = classes.index(GRPOTrainer)
    for owner in (trainer, *classes[: of_trl + 1]):
        methods = vars(owner)
        if any(is_foreign(methods[name]) for name in names & methods.keys()):
            return True
    return False
