"""The HTML of this room: templates of this folder, which escape whatever they show."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from .text import visible


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    environment.tests["nan"] = math.isnan
    return environment


def render(template: str, **values: Any) -> str:
    """The text that a template makes of `values`."""
    return _environment().get_template(template).render(values)
