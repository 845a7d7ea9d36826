r"""Reads sets of real numbers: intervals, unions, inequalities in one variable, `\{x : x > 3\}`."""

import re
from collections.abc import Callable, Iterable

import sympy

from .brackets import split_top_level
from .expressions import number
from .lists import AND, INEQUALITY, NAME, OR, SEPARATOR, read_list
from .parsing import UnreadableError
from .values import RealSet, Term, read_term


SET_SIGN = re.compile(r"\\(?:cup|cap|setminus|mathbb|emptyset)(?![A-Za-z])")
UNION = re.compile(rf"{OR}|\\cup(?![A-Za-z])")
WITHOUT = re.compile(r"\\setminus(?![A-Za-z])")
MEMBER = re.compile(r"^\s*[A-Za-z]\s*\\in(?![A-Za-z])\s*(?:\\mathbb\s*\{\w\}\s*[|:])?")
BUILDER = re.compile(
    r"\s*\\lbrace\s*([A-Za-z])\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:)\s*(.*[<>].*|.*\\(?:le|ge|neq).*)\\rbrace\s*"
)

NAMED = {"\\mathbb{R}": sympy.S.Reals, "\\emptyset": sympy.S.EmptySet, "\\lbrace\\rbrace": sympy.S.EmptySet}


def read_set(text: str) -> RealSet | None:
    """The set of real numbers that a text describes; None if it describes none, or has two variables."""
    if builder := BUILDER.fullmatch(text):
        inner = read_set(builder[2])
        return inner and RealSet(inner.points, None, inner.bounds)
    for sign, join in ((UNION, sympy.Union), (WITHOUT, sympy.Complement)):
        if len(pieces := split_top_level(text, sign)) > 1:
            return _joined(pieces, join)
    if len(pieces := split_top_level(text, SEPARATOR)) > 1:
        if re.fullmatch(r".*\\neq[^<>]*", pieces[0]) and not any(map(INEQUALITY.search, pieces[1:])):
            name = pieces[0].partition("\\neq")[0]  # `x \neq 1, 2` excludes both
            pieces = [pieces[0], *(rf"{name}\neq {piece}" for piece in pieces[1:])]
        both = _joined(pieces, sympy.Intersection)
        if both is None or not both.points.is_empty or re.search(AND, text):
            return both
        return _joined(pieces, sympy.Union)  # "x < 1, x > 3": no number is both
    if (known := NAMED.get(text.replace(" ", ""))) is not None:
        return RealSet(known)
    try:
        return _of_inequality(text) if INEQUALITY.search(text) else _of_brackets(text)
    except UnreadableError:
        return None


def _joined(pieces: list[str], join: Callable[..., sympy.Set]) -> RealSet | None:
    sets = list(filter(None, map(read_set, pieces)))
    names = {one.name for one in sets if one.name}
    if len(sets) < len(pieces) or len(names) > 1:
        return None
    points = join(*(one.points for one in sets))
    bounds = frozenset().union(*(one.bounds for one in sets))
    return RealSet(points, names.pop() if names else None, bounds)


def _of_brackets(text: str) -> RealSet | None:
    r"""The set of `(1, 2]` or `\{1, 2\}`."""
    brackets, elements = read_list(text)
    if brackets == "\\lbrace\\rbrace":
        return RealSet(sympy.FiniteSet(*map(_bound, elements)), None, _terms(elements))
    if len(elements) != 2 or not brackets:
        return None
    start, end = map(_bound, elements)
    if not (start < end):
        return None  # (3, -2) is a point
    return RealSet(sympy.Interval(start, end, brackets[0] == "(", brackets[1] == ")"), None, _terms(elements))


def _of_inequality(text: str) -> RealSet | None:
    r"""The set of `x > 3` or `1 < x \le 2`: a variable alone on one side of each sign."""
    sides = [side.strip() for side in split_top_level(text, INEQUALITY)]
    signs = INEQUALITY.findall(text)
    names = [side for side in sides if NAME.fullmatch(side) and side not in ("e", "\\pi", "\\infty")]
    if len(names) != 1:
        return None
    points: sympy.Set = sympy.S.Reals
    for left, sign, right in zip(sides, signs, sides[1:], strict=False):
        bound = _bound(right if left == names[0] else left)
        if sign == "\\neq":
            points -= sympy.FiniteSet(bound)
        elif (sign in ("<", "\\le")) == (left == names[0]):
            points &= sympy.Interval(-sympy.oo, bound, True, sign in "<>")
        else:
            points &= sympy.Interval(bound, sympy.oo, sign in "<>", True)
    if points.is_empty:
        return None
    return RealSet(points, names[0], _terms(side for side in sides if side != names[0]))


def _bound(text: str) -> sympy.Expr:
    value = number(text).doit()
    if value.free_symbols or not value.is_extended_real:
        raise UnreadableError(text)
    return value


def _terms(bounds: Iterable[str]) -> frozenset[Term]:
    return frozenset(read_term(bound) for bound in bounds if "\\infty" not in bound)
