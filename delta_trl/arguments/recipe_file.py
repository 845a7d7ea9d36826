"""Reading a recipe. Imports nothing heavy, so that mistakes in one are found at once."""

from pathlib import Path
from typing import Any

import yaml

from .errors import RecipeError


class _Loader(yaml.SafeLoader):
    """Refuses keys that stand twice in a mapping, of which YAML's own loader keeps the last."""

    def construct_mapping(self, node, deep=False):
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                continue  # YAML's own loader knows what to make of it
            key, line = self.construct_object(key_node), key_node.start_mark.line + 1
            if key in seen:
                raise RecipeError(f"`{key}` is set twice, in lines {seen[key]} and {line} of the recipe.")
            seen[key] = line
        return super().construct_mapping(node, deep)


def read_recipe(path: str | Path) -> dict[str, Any]:
    """The keys of a YAML file. Raises `RecipeError` if it cannot be read, or is no mapping of distinct keys."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RecipeError(f"--config: no such file: {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"--config: the recipe cannot be read: {error}") from error
    try:
        recipe = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise RecipeError(f"The recipe {path} is not valid YAML: {error}") from error
    if not isinstance(recipe, dict):
        raise RecipeError(f"The recipe {path} holds {type(recipe).__name__}, expected a YAML mapping of options.")
    return recipe


def is_true(value: object) -> bool:
    """As the parser of options reads it."""
    return str(value).lower() in ("true", "yes", "t", "y", "1")


def is_given(value: object) -> bool:
    return value is not None and str(value).lower() not in ("false", "no", "f", "n", "0", "none")
