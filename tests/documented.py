"""What docstrings say of defaults, and the modules that pages of docs show."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path


DEFAULT = re.compile(r"^ *(\w+(?:, \w+)*) \([^)]*?, defaults to (`.*`)\):", re.MULTILINE)


DOCS = Path(__file__).parents[1] / "docs"


def shown_module(name: str, page: str = "token_credit.md") -> str:
    text = (DOCS / page).read_text()
    shown = text.split(f"```python\n# {name}\n")[1]
    return shown.split("```")[0]


def defaults(called: Callable) -> tuple[dict, dict]:
    """The defaults that the docstring of a class or function names, and those that it really has."""
    said = {}
    for names, values in DEFAULT.findall(inspect.getdoc(called)):
        texts = re.findall("`(.*?)`", values)
        said |= zip(names.split(", "), map(eval, texts), strict=True)
    parameters = inspect.signature(called).parameters
    real = {name: parameters[name].default for name in said}
    return said, real
