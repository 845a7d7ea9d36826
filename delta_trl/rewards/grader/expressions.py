r"""Whether two expressions or two equations are equal: exact values, and agreement at random points.

math-verify's `verify` decides what values and points leave open.
"""

import random
from collections.abc import Iterator

import sympy
from math_verify import verify
from sympy.core.relational import Relational

from .forms import RefusedError, refuse_large
from .parsing import UnreadableError, parse_together


DIGITS = 100
TOLERANCE = sympy.Float("1e-9")
EXACT_TOLERANCE = sympy.Float("1e-80")  # without decimals nothing is rounded
AGREEING = 2  # random points at which expressions with variables agree in all digits only if they are equal
UNEVALUATED = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)


def equal_expressions(gold: str, answer: str) -> bool:
    """Compare two expressions without units. A text that cannot be read equals nothing."""
    try:
        first, second = parse_together(gold, answer)
    except UnreadableError:
        return False
    return equal_parsed(first, second)


def equal_parsed(first: sympy.Basic | sympy.MatrixBase, second: sympy.Basic | sympy.MatrixBase) -> bool:
    refuse_large(first)
    refuse_large(second)
    if isinstance(first, sympy.MatrixBase) and isinstance(second, sympy.MatrixBase):
        return first.shape == second.shape and all(map(equal_parsed, first.doit(), second.doit()))
    # A decimal answer to an exact gold must be exact: 3.14159265358979 is not π.
    rounded = isinstance(first, sympy.Basic) and first.has(sympy.Float)
    second = second if rounded else _with_fractions(second)
    equal = _compare_values(first, second)
    if equal is not True and rounded and _compare_values(_with_fractions(first), _with_fractions(second)):
        return True  # 1.1 \cdot 10^5 is 110000
    if equal is not None:
        return equal
    return verify(
        first, second, float_rounding=12, numeric_precision=15, allow_set_relation_comp=True, timeout_seconds=None
    )


def equal_equations(gold: tuple[str, str], answer: tuple[str, str]) -> bool:
    """Whether two equations, given by their sides, say the same: left minus right side is proportional."""
    try:
        sides = parse_together(*gold, *answer)
    except UnreadableError:
        return False
    for side in sides:
        refuse_large(side)
    if not all(isinstance(side, sympy.Expr) for side in sides):
        return False
    first, second = sides[0] - sides[1], sides[2] - sides[3]
    symbols = first.free_symbols
    if not symbols or symbols != second.free_symbols:
        return False
    ratios: list[sympy.Expr] = []
    for point in points(symbols):
        values = [evaluate(difference.subs(point)) for difference in (first, second)]
        if values[0] and values[1]:
            ratios.append(values[0] / values[1])
    return len(ratios) > AGREEING and all(nearly_equal(ratios[0], ratio, TOLERANCE) for ratio in ratios)


def number(text: str) -> sympy.Expr:
    """
    A text as an expression that is not evaluated.

    Raises:
        UnreadableError: If it is not one.
    """
    (expression,) = parse_together(text)
    if not isinstance(expression, sympy.Expr) or isinstance(expression, Relational):
        raise UnreadableError(text)
    refuse_large(expression)
    return expression


def numeric(text: str) -> sympy.Expr | None:
    """The value of a text to `DIGITS` digits; None if it is not a number."""
    try:
        return evaluate(number(text))
    except (RefusedError, UnreadableError):
        return None


def evaluate(expression: sympy.Expr) -> sympy.Expr | None:
    """The value to `DIGITS` digits; None if there is none, or if it takes an integral, a sum, a limit or the like."""
    if expression.has(*UNEVALUATED):
        return None
    try:
        value = expression.doit().evalf(DIGITS)
    except (ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError):
        return None
    return value if isinstance(value, sympy.Expr) and value.is_number and value.is_finite else None


def nearly_equal(first: sympy.Expr, second: sympy.Expr, tolerance: sympy.Float = TOLERANCE) -> bool:
    return bool(abs(first - second) <= tolerance * max(abs(first), abs(second)))


def points(symbols: set[sympy.Symbol]) -> Iterator[dict[sympy.Symbol, sympy.Float]]:
    """Below 1 and above, with all signs, then whole numbers. Decimals: sympy would factor the powers of fractions."""
    rng, names = random.Random(0), sorted(symbols, key=str)
    for low, high in ((0.1, 1), (1, 3), (3, 30), (0.1, 1), (3, 30)):
        yield {name: sympy.Float(rng.uniform(low, high), 2 * DIGITS) for name in names}
    for signs in ((-1, -1), (1, -1), (-1, 1)):
        yield {name: sympy.Float(signs[k % 2] * rng.uniform(0.1, 3), 2 * DIGITS) for k, name in enumerate(names)}
    for _ in range(4):  # (-1)^n is real at whole numbers only
        yield {name: sympy.Float(rng.randint(1, 9), 2 * DIGITS) for name in names}


def _with_fractions(expression: sympy.Basic) -> sympy.Basic:
    if not isinstance(expression, sympy.Basic):
        return expression
    return expression.xreplace({decimal: sympy.Rational(str(decimal)) for decimal in expression.atoms(sympy.Float)})


def _compare_values(first: sympy.Basic, second: sympy.Basic) -> bool | None:
    """
    Whether two expressions have the same value; None where evaluating them does not decide.

    With variables they are compared at random points. A difference is final. So is agreement in all digits at
    `AGREEING` points: no simplifier finds as much.
    """
    if not isinstance(first, sympy.Expr) or not isinstance(second, sympy.Expr):
        return None
    is_exact = not (first.has(sympy.Float) or second.has(sympy.Float))
    tolerance = EXACT_TOLERANCE if is_exact else TOLERANCE
    symbols = first.free_symbols | second.free_symbols
    if not symbols:
        values = [evaluate(expression) for expression in (first, second)]
        if None in values:
            return None
        if not nearly_equal(values[0], values[1], tolerance):
            return False
        exact_values = [first.doit(), second.doit()]
        if all(isinstance(value, sympy.Rational) for value in exact_values):  # digits do not tell large ones apart
            return exact_values[0] == exact_values[1]
        return True if is_exact else None
    is_complex = first.has(sympy.I) or second.has(sympy.I)
    agreed = 0
    for point in points(symbols):
        if not is_complex and not (_is_real(first, point) and _is_real(second, point)):
            continue
        values = [evaluate(expression.subs(point)) for expression in (first, second)]
        if None in values:
            continue
        if not nearly_equal(values[0], values[1], tolerance):
            return False
        agreed += 1
    return True if agreed >= AGREEING and is_exact else None


def _is_real(expression: sympy.Expr, point: dict) -> bool:
    """Whether all roots, powers and functions in an expression are real at a point."""
    for part in sympy.preorder_traversal(expression):
        if isinstance(part, sympy.Function) or (isinstance(part, sympy.Pow) and not part.args[1].is_Integer):
            value = evaluate(part.subs(point))
            if value is None or abs(sympy.im(value)) > EXACT_TOLERANCE * abs(value):
                return False
    return True
