r"""Reads sets of real numbers: intervals, unions, inequalities in one variable, `\{x : x > 3\}`."""

import re

import sympy

from .brackets import split_top_level, squeeze
from .expressions import number
from .lists import AND, INEQUALITY, NAME, OR, SEPARATOR, read_list
from .parsing import UnreadableError
from .values import RealSet, read_term


SET_SIGN = re.compile(r"\\(?:cup|cap|setminus|mathbb|emptyset)(?![A-Za-z])")
UNION = re.compile(rf"{OR}|\\cup(?![A-Za-z])")
WITHOUT = re.compile(r"\\setminus(?![A-Za-z])")
MEMBER = re.compile(r"^\s*[A-Za-z]\s*\\in(?![A-Za-z])\s*(?:\\mathbb\s*\{\w\}\s*[|:])?")
BUILDER = re.compile(
    r"\\lbrace\s*([A-Za-z])\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:)\s*(.*[<>].*|.*\\(?:le|ge|neq).*)\\rbrace"
)


def read_set(text: str) -> RealSet | None:
    """The set of real numbers that a text describes; None if it describes none, or two variables."""
    reader = SetReader()
    try:
        points = reader.read(text)
    except UnreadableError:
        return None
    if points is None or len(reader.names) > 1:
        return None
    name = None if BUILDER.fullmatch(text.strip()) else next(iter(reader.names), None)
    return RealSet(points, name, tuple(map(read_term, sorted(reader.bounds))))


class SetReader:
    """Reads a set, and keeps its finite bounds and the names of its variables."""

    def __init__(self):
        self.bounds: set[str] = set()
        self.names: set[str] = set()

    def read(self, text: str) -> sympy.Set | None:
        """
        The set that a text describes; None if it describes none.

        Raises:
            UnreadableError: If a bound is not a real number.
        """
        text = text.strip()
        if builder := BUILDER.fullmatch(text):
            text = builder[2]
        if len(pieces := split_top_level(text, UNION)) > 1:
            return self._joined(pieces, sympy.Union)
        text = MEMBER.sub("", text)
        if len(pieces := split_top_level(text, WITHOUT)) == 2:
            whole, removed = map(self.read, pieces)
            return None if whole is None or removed is None else whole - removed
        if len(pieces := split_top_level(text, SEPARATOR)) > 1:
            if re.fullmatch(r".*\\neq[^<>]*", pieces[0]) and not any(map(INEQUALITY.search, pieces[1:])):
                name = pieces[0].partition("\\neq")[0]  # `x \neq 1, 2` excludes both
                pieces = [pieces[0], *(rf"{name}\neq {piece}" for piece in pieces[1:])]
            both = self._joined(pieces, sympy.Intersection)
            if both is None or not both.is_empty or re.search(AND, text):
                return both
            return self._joined(pieces, sympy.Union)  # "x < 1, x > 3": no number is both
        if INEQUALITY.search(text):
            return self._of_inequality(text)
        if squeeze(text) in ("\\mathbb{R}", "\\emptyset", "\\lbrace\\rbrace"):
            return sympy.S.Reals if "R" in text else sympy.S.EmptySet
        brackets, elements = read_list(text)
        if brackets == "\\lbrace\\rbrace":
            return sympy.FiniteSet(*map(self._bound, elements))
        if len(elements) == 2 and brackets:
            start, end = map(self._bound, elements)
            is_closed = brackets[0] == "[", brackets[1] == "]"
            if not (start < end) or (start.is_infinite and is_closed[0]) or (end.is_infinite and is_closed[1]):
                return None  # (3, -2) is a point
            return sympy.Interval(start, end, not is_closed[0], not is_closed[1])
        return None

    def _joined(self, pieces: list[str], join: type) -> sympy.Set | None:
        sets = list(map(self.read, pieces))
        return None if None in sets else join(*sets)

    def _of_inequality(self, text: str) -> sympy.Set | None:
        r"""The set of `x > 3` or `1 < x \le 2`: a variable alone on one side of each sign."""
        sides = [side.strip() for side in split_top_level(text, INEQUALITY)]
        signs = INEQUALITY.findall(text)
        names = [side for side in sides if NAME.fullmatch(side) and side not in ("e", "\\pi", "\\infty")]
        if len(sides) != len(signs) + 1 or not all(sides) or len(names) != 1:
            return None
        self.names.add(squeeze(names[0]))
        result: sympy.Set = sympy.S.Reals
        for left, sign, right in zip(sides, signs, sides[1:], strict=False):
            if names[0] not in (left, right):
                return None
            bound = self._bound(right if left == names[0] else left)
            if sign == "\\neq":
                result -= sympy.FiniteSet(bound)
            elif (sign in ("<", "\\le")) == (left == names[0]):
                result &= sympy.Interval(-sympy.oo, bound, True, sign in "<>")
            else:
                result &= sympy.Interval(bound, sympy.oo, sign in "<>", True)
        return None if result.is_empty else result

    def _bound(self, text: str) -> sympy.Expr:
        value = number(text).doit()
        if value.free_symbols or not value.is_extended_real:
            raise UnreadableError(text)
        if value.is_finite is not False:
            self.bounds.add(squeeze(text))
        return value
