"""The pages' templates: the report's, and the audit's, which uses the same styles."""

from functools import cache
from pathlib import Path

import jinja2


@cache
def template(name: str) -> jinja2.Template:
    """A template by its path in the package. It escapes all values, and raises an error if one is missing."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
