"""What docstrings say of defaults."""

import inspect
import re
from collections.abc import Callable


DEFAULT = re.compile(r"^ *(\w+(?:, \w+)*) \([^)]*?, defaults to (`.*`)\):", re.MULTILINE)


def defaults(called: Callable) -> tuple[dict, dict]:
    """The defaults that the docstring of a class or function names, and those that it really has."""
    said = {}
    for names, values in DEFAULT.findall(inspect.getdoc(called)):
        said |= zip(names.split(", "), map(eval, re.findall("`(.*?)`", values)), strict=True)
    parameters = inspect.signature(called).parameters
    return said, {name: parameters[name].default for name in said}
