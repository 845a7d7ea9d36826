r"""Reads sets of real numbers: intervals, unions, inequalities in one variable, `\{x : x > 3\}`."""

import re
from collections.abc import Callable, Iterable

import sympy

from .brackets import split_top_level
from .expressions import number
from .lists import AND, INEQUALITY, NAME, OR, SEPARATOR, read_list, split_elements
from .parsing import UnreadableError
from .values import RealSet


SET_SIGN = re.compile(r"\\(?:cup|cap|setminus|mathbb|emptyset)(?![A-Za-z])")
MEMBER = re.compile(r"^\s*[A-Za-z]\s*\\in(?![A-Za-z])\s*(?:\\mathbb\s*\{\w\}\s*[|:])?")
BUILDER = re.compile(
    r"\s*\\lbrace\s*([A-Za-z])\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:)\s*(.*[<>].*|.*\\(?:le|ge|neq).*)\\rbrace\s*"
)

EXCLUDED = re.compile(r"\s*([A-Za-z])\s*\\neq((?:(?![<>]|\\(?:le|ge|neq)(?![A-Za-z])|\\text).)+)")  # `x \neq 1, 2`
NAMED = {"\\mathbb{R}": sympy.S.Reals, "\\emptyset": sympy.S.EmptySet, "\\lbrace\\rbrace": sympy.S.EmptySet}


def read_set(text: str) -> RealSet | None:
    """The set of real numbers that a text describes; None if it describes none, or has two variables."""
    try:
        return _set(text)
    except ValueError:  # also where two values are taken from a list of other length
        return None


def _set(text: str) -> RealSet:
    if builder := BUILDER.fullmatch(text):
        inner = _set(builder[2])
        return RealSet(inner.points, inner.bounds)
    if excluded := EXCLUDED.fullmatch(text):
        elements = split_elements(excluded[2])
        return RealSet(sympy.S.Reals - sympy.FiniteSet(*map(_bound, elements)), _finite(elements), excluded[1])
    for sign, join in JOINS.items():
        pieces = split_top_level(text, sign)
        if len(pieces) > 1:
            return _joined(pieces, join)
    if (named := NAMED.get(text.replace(" ", ""))) is not None:
        return RealSet(named)
    real_set = _of_inequality(text) if INEQUALITY.search(text) else _of_brackets(text)
    if real_set.points.is_empty:  # (3, -2) is a point
        raise UnreadableError(text)
    return real_set


def _joined(pieces: list[str], join: Callable[..., sympy.Set]) -> RealSet:
    sets = list(map(_set, pieces))
    (name,) = {part.name for part in sets} - {None} or {None}
    points = join(*(part.points for part in sets))
    bounds = frozenset().union(*(part.bounds for part in sets))
    return RealSet(points, bounds, name)


def _listed(*sets: sympy.Set) -> sympy.Set:
    """`x > 1, x < 3` means both. In `x < 1, x > 3` no number is both: it means one of the two."""
    both = sympy.Intersection(*sets)
    return sympy.Union(*sets) if both.is_empty else both


JOINS: dict[re.Pattern, Callable[..., sympy.Set]] = {
    re.compile(rf"{OR}|\\cup(?![A-Za-z])"): sympy.Union,
    re.compile(r"\\setminus(?![A-Za-z])"): sympy.Complement,
    re.compile(rf"\s*,?\s*{AND}"): sympy.Intersection,
    SEPARATOR: _listed,
}


def _of_brackets(text: str) -> RealSet:
    r"""The set of `(1, 2]` or `\{1, 2\}`."""
    brackets, elements = read_list(text)
    if brackets == "\\lbrace\\rbrace":
        return RealSet(sympy.FiniteSet(*map(_bound, elements)), _finite(elements))
    start, end = map(_bound, elements)
    opening, closing = list(brackets)
    return RealSet(sympy.Interval(start, end, opening == "(", closing == ")"), _finite(elements))


def _of_inequality(text: str) -> RealSet:
    r"""The set of `x > 3` or `1 < x \le 2`: a variable alone on one side of each sign."""
    sides = [side.strip() for side in split_top_level(text, INEQUALITY)]
    signs = INEQUALITY.findall(text)
    (name,) = [side for side in sides if NAME.fullmatch(side) and side not in ("e", "\\pi", "\\infty")]
    points: sympy.Set = sympy.S.Reals
    for left, sign, right in zip(sides, signs, sides[1:], strict=False):
        is_left = left == name
        bound = _bound(right if is_left else left)
        is_below = is_left == (sign in ("<", "\\le"))
        start = -sympy.oo if is_below else bound
        end = bound if is_below else sympy.oo
        is_open = sign in "<>"
        points &= sympy.Interval(start, end, is_open, is_open)
    return RealSet(points, _finite(side for side in sides if side != name), name)


def _bound(text: str) -> sympy.Expr:
    value = number(text).doit()
    if value.free_symbols or not value.is_extended_real:
        raise UnreadableError(text)
    return value


def _finite(bounds: Iterable[str]) -> frozenset[str]:
    return frozenset(bound for bound in bounds if "\\infty" not in bound)
