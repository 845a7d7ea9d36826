"""Golds, as columns of data sets have them."""

from collections.abc import Iterable
from decimal import Decimal
from numbers import Real
from typing import Any


def known_golds(reward: str, solution: Iterable, kinds: tuple[type, ...] = (str, Real, Decimal)) -> list[Any]:
    """
    The golds, with None for those that are missing (None or NaN).

    Raises:
        TypeError: If a gold is of none of the `kinds`: its text would be a gold that nothing equals.
    """
    golds = [None if isinstance(gold, (Real, Decimal)) and gold != gold else gold for gold in solution]
    for i, gold in enumerate(golds):
        if gold is not None and not isinstance(gold, kinds):
            raise TypeError(
                f"{reward}: `solution` {i + 1} of {len(golds)} is {gold!r:.200}, of type {type(gold).__name__}: "
                f"expected {' or '.join(kind.__name__ for kind in kinds)}, or None where there is no gold. Convert "
                "the column with `dataset.map`."
            )
    return golds
