"""The types of values that a text is read as. `reading.py` makes them, `comparison.py` compares them."""

import functools
import math
import re
from dataclasses import dataclass
from typing import Any

import sympy

from .numerals import exact
from .parsing import UnreadableError, parse_together


INFINITE = {"\\infty": math.inf, "+\\infty": math.inf, "-\\infty": -math.inf}
NO_TERM = re.compile(r"\\?\||[A-Za-z]+\s*\(")  # a norm, a function


@dataclass(frozen=True)
class Number:
    """A numeral. Its value is an exact fraction, or infinite."""

    text: str
    value: Any  # a Fraction, or an infinite float

    @property
    def is_fraction(self) -> bool:
        """Whether it is written as a fraction or as a mixed number."""
        return re.search(r"[/:]|\\frac", self.text) is not None

    @property
    def is_integer(self) -> bool:
        """Whether it is a whole number that is not written as a fraction."""
        return not self.is_fraction and self.value % 1 == 0


@dataclass(frozen=True)
class Expression:
    """Mathematics that is parsed when it is compared: what the letter `i` means depends on the other side."""

    text: str


Term = Number | Expression
"""A value without a unit."""


def read_number(text: str) -> Number | None:
    """A numeral; None for any other text."""
    value = INFINITE.get(text.replace(" ", "")) or exact(text)
    return None if value is None else Number(text, value)


def read_term(text: str) -> Term:
    """A text as a numeral or an expression."""
    return read_number(text) or Expression(text)


@dataclass(frozen=True)
class Quantity:
    """
    A value with a known unit: its factor, and the product of its dimensions. A unit `in_symbols` (`80 Ω`) may be
    the name of a number, too: it is one where the gold is a numeral or has a unit.
    """

    value: Term
    factor: sympy.Expr
    dimension: sympy.Expr
    in_symbols: bool = False


@dataclass(frozen=True)
class Words:
    """Words without case, articles and punctuation."""

    text: str


@dataclass(frozen=True)
class Choice:
    """The letter of a choice, and what stands there for it."""

    letter: str
    content: "Readings" = ()


@dataclass(frozen=True)
class Tuple:
    """Elements in order, each with its readings. `label` holds the names of unknowns, or says row or column."""

    items: tuple["Readings", ...]
    label: str | None = None


@dataclass(frozen=True)
class Collection:
    """Elements without order."""

    items: tuple["Readings", ...]


@dataclass(frozen=True)
class RealSet:
    """A set of real numbers, with its finite bounds as they are written, and the name of its variable."""

    points: sympy.Set
    bounds: frozenset[str] = frozenset()
    name: str | None = None


@dataclass(frozen=True)
class Equation:
    """Two sides with a sign between them: `=`, `<`, `\\le` or `\\neq`. `value` is what the right side says."""

    left: str
    sign: str
    right: str
    name: str | None = None  # if the left side only names the value
    value: "Readings" = ()

    @functools.cached_property
    def relates_unknowns(self) -> bool:
        """Whether the left side is an expression of unknowns, and no name or operation: `x + y`, `x^2`, not `AB`."""
        if self.sign != "=":
            return True
        if self.name or NO_TERM.match(self.left):
            return False
        try:
            (left,) = parse_together(self.left)
        except UnreadableError:
            return False
        return isinstance(left, (sympy.Add, sympy.Mul, sympy.Pow)) and bool(left.free_symbols)


Value = Term | Quantity | Words | Choice | Tuple | Collection | RealSet | Equation
Readings = tuple[Value, ...]
"""The possible meanings of a text, the preferred one first."""
