"""Looks up names and options in recipes, with the nearest known one as a suggestion; imports dotted paths."""

import difflib
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .errors import users_code


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
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        name = module_name or path
        with users_code(f"The {kind} {path!r} needs this module."):
            __import__(name)  # `import_module` would take "./rewards.py" for a relative import
        module = sys.modules[name]
        if module_name and hasattr(module, attribute):
            return getattr(module, attribute)
        hint = nearest(attribute, dir(module))
        problem = f"module {module.__name__!r} has no {attribute!r}"
    except ModuleNotFoundError as error:  # also a module that the user's own imports
        hint = nearest(path, known)
        problem = str(error)
    names = [*known, "a dotted path such as `my_module.my_name`"]
    raise ValueError(f"Unknown {kind} {path!r}: {problem}{hint}. Expected {', '.join(names)}.")


def refuse_missing_path(option: str, name: str) -> None:
    """Raise `ValueError` if nothing is where a name points that cannot be an id on the hub."""
    is_path = name[:1] in "./~" or name.count("/") > 1
    if is_path and not Path(name).exists():
        raise ValueError(f"{option}={name!r}: there is no such file or folder in {os.getcwd()}.")


def refuse_file(option: str, name: str) -> None:
    """Raise `ValueError` for a file in place of a folder or an id on the hub."""
    if Path(name).is_file():
        raise ValueError(f"{option}={name!r} is a file. Give the folder of a model, with its config.json.")


def check_options(name: str, factory: Callable, options: Iterable[str]) -> None:
    """Raise `ValueError` if `factory` does not take these options (with the nearest one) or needs others, too."""
    signature = inspect.signature(factory)
    names = list(signature.parameters)
    try:
        signature.bind(**dict.fromkeys(options))
    except TypeError as error:
        hints = [nearest(option, names) for option in options if option not in names]
        raise ValueError(f"{name}: {error}{''.join(hints)}; its options are {', '.join(names)}.") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """The nearest known name in brackets, as a suggestion; an empty text if none is near. Ignores case."""
    names = {name_known.lower(): name_known for name_known in known}
    nearest_names = difflib.get_close_matches(name.lower(), names, n=1)
    if not nearest_names:
        return ""
    return f" (did you mean {names[nearest_names[0]]!r}?)"
