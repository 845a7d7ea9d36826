"""Looks up names and options in recipes, with the nearest known one as a suggestion; imports dotted paths."""

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any


def import_dotted(kind: str, path: str, known: Iterable[str]) -> Any:
    """
    Import what a dotted path such as `my_module.my_reward` names. Modules of the working directory can be imported.

    Args:
        kind (`str`): The kind of thing to import, for messages.
        path (`str`): The path.
        known (`Iterable[str]`): Names to suggest.

    Raises:
        ValueError: If there is no such module, or nothing of that name in it.
    """
    module_name, _, attribute = path.rpartition(".")
    if not module_name:
        raise ValueError(
            f"Unknown {kind} {path!r}{nearest(path, known)}: expected one of {', '.join(known)}, or a dotted path, as "
            "in `my_module.my_name`."
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the user's module lacks a module itself, Python's own message says more.
        missing = str(error.name)
        if not f"{module_name}.".startswith(f"{missing}."):
            raise
        raise ValueError(f"Unknown {kind} {path!r}{nearest(path, known)}: there is no module {missing!r}.") from error
    if not hasattr(module, attribute):
        hint = nearest(attribute, dir(module))
        raise ValueError(f"Unknown {kind} {path!r}: module {module_name!r} has no {attribute!r}{hint}.")
    return getattr(module, attribute)


def check_options(name: str, factory: Callable, options: Iterable[str]) -> None:
    """Raise `ValueError` if `factory` does not take these options (with the nearest one) or needs others, too."""
    known, missing = [], []
    for parameter, details in inspect.signature(factory).parameters.items():
        if parameter.startswith("_"):
            continue
        known.append(parameter)
        if details.default is details.empty and parameter not in options:
            missing.append(parameter)
    all_options = f"; its options are {', '.join(known)}."
    for option in options:
        if option not in known:
            raise ValueError(f"{name} does not know {option!r}{nearest(option, known)}{all_options}")
    if missing:
        raise ValueError(f"{name} needs {', '.join(map(repr, missing))}{all_options}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The nearest known name in brackets, as a suggestion; an empty text if none is near. Ignores case."""
    names = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), names, n=1)
    return f" (did you mean {names[found[0]]!r}?)" if found else ""
