"""Checks the arguments of rewards before anything is graded."""

from decimal import Decimal
from numbers import Real
from typing import Any


def check_inputs(reward: str, completions: Any, **column: Any) -> None:
    """
    Check a batch of completions and the column that they are graded by.

    Args:
        reward (`str`): Name of the reward, for messages.
        completions (`list[str] | list[list[dict]]`): Texts, or lists of chat messages.
        **column: The column, by its name.

    Raises:
        TypeError: If one of them is not a list, or a completion is neither text nor messages with text.
        ValueError: If their lengths differ.
    """
    [(name, values)] = column.items()
    for what, given in (("completions", completions), (name, values)):
        if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__len__"):
            raise TypeError(
                f"{reward}: expected lists, with a `{name}` for each completion; got {what}={given!r:.200}. For a "
                f"single completion: {reward}([completion], {name}=[...])."
            )
    if len(values) != len(completions):
        raise ValueError(f"{reward}: {len(completions)} completions, but {len(values)} of `{name}`: expected as many.")
    for i, completion in enumerate(completions):
        if not (isinstance(completion, str) or (isinstance(completion, list) and all(map(_is_message, completion)))):
            raise TypeError(
                f"{reward}: completion {i + 1} of {len(completions)} is {completion!r:.200}: expected text or a list "
                "of chat messages."
            )


def known_golds(reward: str, solution: Any, kinds: tuple[type, ...] = (str, bool, Real, Decimal)) -> list:
    """
    The golds as they are, with None for those that are missing (None or NaN).

    Raises:
        TypeError: If a gold is of none of the `kinds`. A bool counts as a number only if `kinds` names it.
    """
    golds = [None if isinstance(gold, (Real, Decimal)) and gold != gold else gold for gold in solution]
    for i, gold in enumerate(golds):
        if gold is not None and (not isinstance(gold, kinds) or (isinstance(gold, bool) and bool not in kinds)):
            raise TypeError(
                f"{reward}: `solution` {i + 1} of {len(golds)} is {gold!r:.200}, of type {type(gold).__name__}: "
                f"expected {'text or a number' if Real in kinds else 'a letter, or its number counted from 0'}, or "
                "None where there is no gold. Convert the column with `dataset.map`."
            )
    return golds


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    content = message.get("content")  # text, or parts that hold text
    if isinstance(content, list):
        return all(isinstance(part, (str, dict)) for part in content)
    return content is None or isinstance(content, str)
