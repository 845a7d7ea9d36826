"""Whether two expressions or two equations are equal: exact values, and agreement at random points."""

import random
from collections.abc import Iterator

import sympy
from sympy.core.relational import Relational

from .parsing import UnreadableError, parse_together
from .values import Equation


DIGITS = 100
TOLERANCE = sympy.Float("1e-80")
RANGES = ((0.1, 1), (3, 30), (-3, -0.1), (-3, 3)) * 2
UNEVALUATED = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)


def equal_expressions(gold: str, answer: str) -> bool:
    """
    Compare two expressions without units. Decimals are exact: 3.14159265358979 is not π. Raises UnreadableError if one
    is none.
    """
    first, second = parse_together(gold, answer)
    if isinstance(first, sympy.Expr) and isinstance(second, sympy.Expr):
        return same_value(first, second)
    return first == second


def is_proportional(gold: Equation, answer: Equation) -> bool:
    """Whether two equations or inequalities say the same: left minus right side is proportional."""
    try:
        left, right, other_left, other_right = parse_together(gold.left, gold.right, answer.left, answer.right)
        first = left - right
        second = other_left - other_right
    except (UnreadableError, TypeError):
        return False
    if gold.sign != answer.sign or not first.free_symbols:
        return False
    if first - second == 0:  # also an identity, whose values are all 0
        return True
    for point in points(first.free_symbols):
        value = evaluate(first, point)
        other = evaluate(second, point)
        if value and other:
            is_turned = gold.sign in ("<", "\\le") and not (value / other).is_positive
            return not is_turned and same_value(first, second * value / other)
    return False


def number(text: str) -> sympy.Expr:
    """
    A text as an expression that is not evaluated.

    Raises:
        UnreadableError: If it is not one.
    """
    (expression,) = parse_together(text)
    if not isinstance(expression, sympy.Expr) or isinstance(expression, Relational):
        raise UnreadableError(text)
    return expression


def numeric(text: str) -> sympy.Expr | None:
    """The value of a text to `DIGITS` digits; None if it is not a number."""
    try:
        return evaluate(number(text))
    except UnreadableError:
        return None


def evaluate(expression: sympy.Expr, point: dict[sympy.Symbol, sympy.Float] | None = None) -> sympy.Expr | None:
    """
    The value at a point to `DIGITS` digits; None if there is none, as at a pole, or if it takes an integral, a sum, a
    limit or the like.
    """
    if expression.has(*UNEVALUATED):
        return None
    try:
        value = expression.subs(point or {}).doit().evalf(DIGITS)
    except (ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError):
        return None
    return value if value.is_number and value.is_finite else None


def points(symbols: set[sympy.Symbol]) -> Iterator[dict[sympy.Symbol, sympy.Float]]:
    """Random points with all signs, then integers. Decimals, because sympy factors powers of fractions."""
    rng = random.Random(0)
    integers = [(rng.randint, 1, 9)] * 4  # (-1)^n is real at whole numbers only
    for draw, low, high in [*((rng.uniform, *bounds) for bounds in RANGES), *integers]:
        yield {name: sympy.Float(draw(low, high), 2 * DIGITS) for name in sorted(symbols, key=str)}


def same_value(first: sympy.Expr, second: sympy.Expr) -> bool:
    """
    Whether two expressions have the same value. With variables they are compared at random points: they must agree at
    all at which both are real, and there must be one. What has no value, such as an integral, must be the same.
    """
    symbols = first.free_symbols | second.free_symbols
    is_complex = first.has(sympy.I) or second.has(sympy.I)
    agree = False
    for point in points(symbols) if symbols else [{}]:
        if symbols and not is_complex and not (_is_real(first, point) and _is_real(second, point)):
            continue
        value = evaluate(first, point)
        other = evaluate(second, point)
        if value is None or other is None:
            continue
        if abs(value - other) > TOLERANCE * max(abs(value), abs(other)):
            return False
        agree = True
    if agree and (difference := (first - second).doit()).is_Rational:
        return difference == 0  # digits are too few for 10^100000
    return agree or first == second


def _is_real(expression: sympy.Expr, point: dict) -> bool:
    """Whether all roots, powers and functions in an expression are real at a point."""
    parts = {part for part in expression.atoms(sympy.Function, sympy.Pow) if not part.args[-1].is_Integer}
    values = [evaluate(part, point) for part in parts]
    return all(value is not None and abs(sympy.im(value)) <= TOLERANCE * abs(value) for value in values)
