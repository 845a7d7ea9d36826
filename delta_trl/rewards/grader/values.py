r"""Whether two values without units are equal: numbers, expressions, equations, chains of equalities.

math-verify is the judge of mathematical equality. It is asked about one value at a time, after the guards, and only
where a numerical comparison does not decide.
"""

import itertools
import random
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import sympy
from math_verify import verify
from sympy.core.relational import Relational

from .guards import (
    RefusedError,
    refuse_large,
    refuse_restatement,
    refuse_shape,
    refuse_symbols,
    refuse_undone,
    refuse_zeros,
)
from .normalization import closing, split_top_level, squeeze
from .parsing import UnreadableError, fraction, is_complex_number, opaque, parse, parse_both, repeating


DIGITS = 100
TOLERANCE = sympy.Float("1e-9")
EXACT_TOLERANCE = sympy.Float("1e-80")  # without decimals nothing is rounded
AGREEING = 2  # random points at which expressions with variables agree in all digits only if they are equal
DECIMAL = re.compile(r"-?\d*\.\d+")
EQUALITY = re.compile(r"(?<![<>!:])=+(?![<>])|\\equiv(?![A-Za-z])|(\\approx)(?![A-Za-z])")
INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|neq|lt|gt|leq|geq)(?![A-Za-z])")
COLON = re.compile(r":")
APPROXIMATELY = re.compile(r"\\approx(?![A-Za-z])")
GREEK = (  # but π, which is a number
    r"(?:var)?(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|upsilon|phi|chi|psi"
    r"|omega)|Delta|Omega|Phi|Sigma|Gamma|Theta|Lambda|Psi"
)
NAME_COMMAND = re.compile(
    r"\\(?:frac|overline|vec|overrightarrow|mathbf|mathbb|hat|bar|angle|triangle|widehat|tilde|sin|cos|tan|ell|cdot|partial"
    rf"|nabla|{GREEK})(?![A-Za-z])"
)
HEAD = re.compile(  # the start of what is written like a function: `P(`, `f_1(`
    r"(?:\\(?:mathbb|mathcal|text)\s*\{[^{}]*\}|[A-Za-z]"
    r"|\\(?:Pr|Re|Im|det|deg|dim|gcd|lcm|max|min|phi|varphi|Phi|sigma|tau|mu|chi|alpha|omega|rho)(?![A-Za-z]))"
    r"(?:_\s*(?:\{[^{}]*\}|\w))?'*\s*[(\[]"
)
OPERATION = re.compile(  # the quantity asked for, which an answer may repeat before its value
    r"\\(?:i*int|oint|sum|prod|lim|max|min|sup|inf|lfloor|lceil|deg|dim|det|rank|arg)(?![A-Za-z])|\d+\s*\\b?mod(?![A-Za-z])"
)
UNKNOWN = re.compile(r"[A-Za-z]")
ARGUMENT = re.compile(r"\\[A-Za-z]+|(?<=\w)\([^()]*\)")


def equal_values(gold: str, answer: str) -> bool:
    """Compare two values without units."""
    if squeeze(gold) == squeeze(answer):
        return True
    first, second = fraction(gold), fraction(answer)
    if first is not None and second is not None:
        return first == second or _is_rounded(gold, first, second)
    if not answer or not gold:
        return False
    refuse_shape(gold, answer)
    ratios = [split_top_level(split_equation(text)[-1], COLON) for text in (gold, answer)]
    if max(map(len, ratios)) > 2:
        return _equal_ratios(*ratios)
    if ":" in answer and first is not None and first.denominator == 1:  # the ratio 100:1 is not 100
        return False
    gold_sides, answer_sides = split_equation(gold), split_equation(answer)
    if len(gold_sides) == 1 and len(answer_sides) == 1:
        return _equal_expressions(gold, answer)
    return _equal_equations(gold, gold_sides, answer, answer_sides)


def _equal_ratios(gold: list[str], answer: list[str]) -> bool:
    """Whether ratios of three or more numbers are proportional, or those of letters alike: 3:4:5 and 6:8:10."""
    if len(gold) != len(answer):
        return False
    numbers = [list(map(numeric, parts)) for parts in (gold, answer)]
    if None in numbers[0] or None in numbers[1]:
        return all(itertools.starmap(equal_values, zip(gold, answer, strict=True)))
    for wanted, given in zip(gold, answer, strict=True):
        refuse_restatement(wanted, given)
        refuse_undone(read_number(wanted), read_number(given))
    (first, *_), (scale, *_) = numbers
    if not first or not scale:
        return numbers[0] == numbers[1]
    return all(nearly_equal(a * scale, b * first, tolerance_of(*gold)) for a, b in zip(*numbers, strict=True))


def split_equation(text: str) -> list[str]:
    """The sides of a chain of equalities; one side if it holds an inequality."""
    if INEQUALITY.search(text) and len(split_top_level(text, INEQUALITY)) > 1:
        return [text]
    return [side.strip() for side in split_top_level(text, EQUALITY)]


def is_name(text: str) -> bool:
    """Whether the left side of an equation merely names the value on the right: x, f(2), AB, m + n, ∠ABC."""
    text = re.sub(r"\|\s*[A-Z]{1,3}\s*\||\\#", " x ", text)  # the length AB, the size of S
    if _is_operation(text):
        return True
    if not text or "|" in text or len(text) > 60:
        return False
    rest = re.sub(r"\\text\s*\{[^{}]*\}", "x", text)
    rest = re.sub(r"_\s*(?:\{[^{}]*\}|\w)|(?<=\\sin|\\cos|\\tan)\s*\^\s*\{?\s*2\s*\}?", "", rest)
    rest = re.sub(r"[A-Za-z]\s*'*(?:\^\{?(?:-1|'+|\\prime)\}?)?\s*\([^()=]{1,20}\)", "x", rest)
    rest = NAME_COMMAND.sub("x", rest)
    return bool(re.fullmatch(r"[A-Za-z'{}+:\s]+", rest)) and bool(re.search(r"[A-Za-z]", rest))


def _is_operation(text: str) -> bool:
    r"""Whether a text only states the quantity asked for: `\int_0^1 x\,dx`, `P(X = 2)`, `\mathbb{E}[X]`, `\|v\|`."""
    if OPERATION.match(text):
        return True
    if head := HEAD.match(text):
        return closing(text, head.end() - 1) == len(text) - 1
    return bool(
        re.fullmatch(
            r"\[(?:[A-Z]{2,}|[A-Z]{1,3}:[A-Z]{1,3})\]|\\\|[^|]*\\\|(?:_\s?\w)?|\\#\s*\\lbrace[^{}]*\\rbrace", text
        )
    )


def relates_unknowns(text: str) -> bool:
    """Whether an equation relates unknowns instead of naming a value: `x + y = 3`, `y' = 2y`, `y'' + y = 0`."""
    sides = split_equation(text)
    if len(sides) != 2 or _is_operation(sides[0]):
        return False
    left, right = (set(UNKNOWN.findall(ARGUMENT.sub("", side))) for side in sides)
    if "'" in sides[0]:
        return bool(left & right) or "+" in sides[0]
    return len(left & set("xyz")) > 1 and "\\frac" not in sides[0]


def _equal_equations(gold: str, gold_sides: list[str], answer: str, sides: list[str]) -> bool:
    """Compare two texts when at least one is an equation or a chain of equalities."""
    if not all(sides) or not all(gold_sides):
        raise RefusedError("unreadable")
    if len(gold_sides) > 1 and not APPROXIMATELY.search(gold) and None not in map(numeric, gold_sides):
        gold, gold_sides = gold_sides[-1], gold_sides[-1:]  # 6 * 7 = 42 says 42
    if len(gold_sides) > 1:
        if APPROXIMATELY.search(gold):
            return any(equal_values(side, answer) for side in gold_sides if not is_name(side))
        if not is_name(gold_sides[0]) or relates_unknowns(gold):
            if len(gold_sides) > 2 or len(sides) != 2:
                return False
            return _has_symbols(answer) and _equal_expressions(gold, answer)  # 0 = 1 is no equation of a curve
        if len(sides) == 1:
            return equal_values(gold_sides[-1], answer)
        if not same_name(gold_sides[0], sides[0]):
            if is_name(sides[-1]) and same_name(gold_sides[0], sides[-1]):
                return equal_values(gold_sides[-1], sides[0])
            # x + 5 = 7 is not solved for x, but y + 3 = x^2 says the same as y = x^2 - 3
            return len(sides) == 2 and _has_symbols(gold_sides[-1]) and _equal_expressions(gold, answer)
        gold = gold_sides[-1]
    if APPROXIMATELY.search(answer):
        return _equal_approximation(gold, answer)
    if is_name(sides[0]):
        return _equal_chain(gold, sides if _is_operation(sides[0]) and numeric(sides[0]) is not None else sides[1:])
    if len(sides) == 2 and is_name(sides[1]):  # 42 = x
        return equal_values(gold, sides[0])
    if any(_has_symbols(side) for side in sides):  # x^2 = 42 does not say 42, but (x+1)^2 = x^2+2x+1 says (x+1)^2
        return all(equal_values(gold, side) for side in sides)
    return _equal_chain(gold, sides)


def same_name(first: str, second: str) -> bool:
    names = {squeeze(opaque(name)).lower() for name in (first, second)}
    if len(names) == 2 and len({re.sub(r"_\{?\d\}?$", "", name) for name in names}) == 1:
        return not all("_" in name for name in names)  # x_1 is a value of x, but x_1 is not x_2
    return len(names) == 1 or (names <= {"y", "f(x)", "y(x)", "g(x)"} and "y" in names)


def _equal_chain(gold: str, sides: list[str]) -> bool:
    """A chain such as `2 + 40 = 42`: its last side counts, and the others must agree."""
    _agree(sides)
    return equal_values(gold, sides[-1])


def _agree(sides: list[str]) -> sympy.Expr | None:
    """The value of the last side; None if it holds variables. RefusedError if the sides that are numbers differ."""
    numbers = [numeric(side) for side in sides]
    if any(number is None and not _has_symbols(side) for number, side in zip(numbers, sides, strict=True)):
        raise RefusedError("unreadable")
    known = [(number, side) for number, side in zip(numbers, sides, strict=True) if number is not None]
    for (first, text), (second, side) in itertools.pairwise(known):
        if not nearly_equal(first, second, tolerance_of(text, side)):
            raise RefusedError("the sides of the chain disagree")
    return numbers[-1]


def _equal_approximation(gold: str, answer: str) -> bool:
    r"""
    A chain such as `\sqrt 2 \approx 1.414 \approx 1.41`.

    What comes before the first sign is the value, and the rest must be roundings of it. An exact gold must equal that
    value. A decimal gold may also equal one of the roundings, if every number in the chain rounds to the gold.
    """
    value, *rounded = [split_equation(side)[-1] for side in split_top_level(answer, APPROXIMATELY)]
    if is_name(value):  # "x is about 5" does not say that x is 5
        if "." not in gold:
            return False
        value, *rounded = rounded
    exact = _agree([side for side in split_equation(APPROXIMATELY.split(answer)[0]) if not is_name(side)] or [value])
    if exact is None or not all(_rounds_to(exact, side) for side in rounded):
        raise RefusedError("the sides of the chain disagree")
    if equal_values(gold, value):
        return True
    if not DECIMAL.fullmatch(gold) or not any(equal_values(gold, side) for side in rounded):
        return False
    return all(_rounds_to(number, gold) for number in (exact, *map(numeric, rounded)))


def _rounds_to(value: sympy.Expr | None, text: str) -> bool:
    """Whether a decimal is the value, rounded or cut off: for pi, both 3.142 and 3.141 are."""
    if value is None or not re.fullmatch(r"-?\d*\.?\d+", text):
        return False
    unit = sympy.Rational(1, 10 ** len(text.partition(".")[2]))
    cut = abs(value) - abs(sympy.Rational(text))
    close = unit * (1 + TOLERANCE) / 2
    return bool(abs(value - sympy.Rational(text)) <= close or (unit < 1 and 0 <= cut < unit * (1 - TOLERANCE)))


def _has_symbols(text: str) -> bool:
    try:
        return bool(parse(text, is_complex_number(text), False).free_symbols)
    except (UnreadableError, AttributeError):
        return False


def _equal_expressions(gold: str, answer: str) -> bool:
    """Apply the guards, then compare numerically; math-verify decides the rest."""
    if gold.count("'") != answer.count("'"):  # latex2sympy ignores primes
        return False
    refuse_restatement(gold, answer)
    refuse_zeros(gold, answer)
    exact = [repeating(text) for text in (gold, answer)]
    gold, answer = (text if value is None else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
                    for text, value in zip((gold, answer), exact, strict=True))  # fmt: skip
    try:
        first, second = parse_both(gold, answer)
    except UnreadableError:
        return False
    refuse_large(first)
    refuse_large(second)
    if not (isinstance(second, Relational) or split_equation(answer)[1:]):
        refuse_symbols(first, second)
    # sympy computes with the imaginary unit, so check the form with i as a symbol
    refuse_undone(first, parse(answer, False, False) if is_complex_number(answer) else second)
    if isinstance(first, sympy.Number) and is_complex_number(answer) and parse(answer, False, False).is_Add:
        raise RefusedError("restates the problem: arithmetic")  # 42 + i - i
    if not _has_decimals(first):  # a decimal answer to an exact gold must be exact: 3.14159265358979 is not π
        second = _with_fractions(second)
    if DECIMAL.fullmatch(gold) and isinstance(second, sympy.Expr) and (value := _evaluate(second)) is not None:
        return _is_rounded(gold, sympy.Rational(gold), value)
    if (equal := _compare_numerically(first, second)) is not None:
        return equal
    if _compare_numerically(_with_fractions(first), _with_fractions(second)):  # 1.1 \cdot 10^5 is 110000
        return True
    return verify(
        first, second, float_rounding=12, numeric_precision=15, allow_set_relation_comp=True, timeout_seconds=None
    )


def _is_rounded(gold: str, rounded: Any, value: Any) -> bool:
    """Whether a decimal gold may be the value, rounded or cut off: to its last digit and to a relative 1e-9."""
    if not DECIMAL.fullmatch(gold):
        return False
    unit = Fraction(1, 10 ** len(gold.partition(".")[2]))
    difference = abs(value - rounded)
    return bool(difference < unit and difference <= abs(rounded) / 10**9)


def _has_decimals(expression: sympy.Basic) -> bool:
    return isinstance(expression, sympy.Basic) and expression.has(sympy.Float)


def _with_fractions(expression: sympy.Basic) -> sympy.Basic:
    if not _has_decimals(expression):
        return expression
    return expression.xreplace({decimal: sympy.Rational(str(decimal)) for decimal in expression.atoms(sympy.Float)})


def _compare_numerically(first: sympy.Basic, second: sympy.Basic) -> bool | None:
    """
    Whether two expressions have the same value; None where evaluating them does not decide.

    With variables they are compared at random points. A difference is final. So is agreement in all digits at
    `AGREEING` points: no simplifier finds as much.
    """
    if not isinstance(first, sympy.Expr) or not isinstance(second, sympy.Expr):
        return None
    exact = not (_has_decimals(first) or _has_decimals(second))
    tolerance = EXACT_TOLERANCE if exact else TOLERANCE
    symbols = first.free_symbols | second.free_symbols
    if not symbols:
        values = [_evaluate(expression) for expression in (first, second)]
        if None in values:
            return None
        if not nearly_equal(values[0], values[1], tolerance):
            return False
        values = [first.doit(), second.doit()]
        if all(isinstance(value, sympy.Rational) for value in values):  # digits do not tell large integers apart
            return values[0] == values[1]
        return True if exact else None
    is_complex = first.has(sympy.I) or second.has(sympy.I)
    for points in (_points(symbols), _whole_points(symbols)):  # (-1)^n is real at whole numbers only
        agreed = 0
        for point in points:
            if not is_complex and not (_is_real(first, point) and _is_real(second, point)):
                continue
            values = [_evaluate(expression.subs(point)) for expression in (first, second)]
            if None in values:
                continue
            if not nearly_equal(values[0], values[1], tolerance):
                return False
            agreed += 1
        if agreed >= AGREEING:
            return True if exact else None
    return None


def _points(symbols: Iterable[sympy.Symbol]) -> Iterator[dict[sympy.Symbol, sympy.Float]]:
    """Below 1 and above, with all signs. As decimals: sympy would factor the powers of fractions."""
    rng, names = random.Random(0), sorted(symbols, key=str)
    for low, high in ((0.1, 1), (1, 3), (3, 30), (0.1, 1), (3, 30)):
        yield {name: sympy.Float(rng.uniform(low, high), 2 * DIGITS) for name in names}
    for signs in ((-1, -1), (1, -1), (-1, 1)):
        yield {name: sympy.Float(signs[k % 2] * rng.uniform(0.1, 3), 2 * DIGITS) for k, name in enumerate(names)}


def _whole_points(symbols: Iterable[sympy.Symbol]) -> Iterator[dict[sympy.Symbol, sympy.Float]]:
    rng, names = random.Random(0), sorted(symbols, key=str)
    for _ in range(8):
        yield {name: sympy.Float(rng.randint(1, 9), 2 * DIGITS) for name in names}


def _is_real(expression: sympy.Expr, point: dict) -> bool:
    """Whether all roots, powers and functions in an expression are real at a point."""
    for part in sympy.preorder_traversal(expression):
        if isinstance(part, sympy.Function) or (isinstance(part, sympy.Pow) and not part.args[1].is_Integer):
            value = _evaluate(part.subs(point))
            if value is None or abs(sympy.im(value)) > EXACT_TOLERANCE * abs(value):
                return False
    return True


def numeric(text: str) -> sympy.Expr | None:
    """The value of a text as a number of `DIGITS` digits, or None."""
    expression = read_number(text)
    return None if expression is None else _evaluate(expression)


def read_number(text: str) -> sympy.Expr | None:
    """Parse a text as an expression, without evaluating it; None if it is not one."""
    value = fraction(text)
    if value is not None:
        return sympy.Rational(value.numerator, value.denominator)
    try:
        expression = parse(text, is_complex_number(text), False)
    except UnreadableError:
        return None
    refuse_large(expression)
    return expression if isinstance(expression, sympy.Expr) else None


def _evaluate(expression: sympy.Expr) -> sympy.Expr | None:
    """The value to `DIGITS` digits; None if there is none, or if it takes an integral, a sum, a limit or the like."""
    if expression.has(sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative):
        return None
    try:
        value = expression.doit().evalf(DIGITS)
    except (ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError):
        return None
    return value if isinstance(value, sympy.Expr) and value.is_number and value.is_finite else None


def tolerance_of(*texts: str) -> sympy.Float:
    """The tolerance: only texts with decimals may be rounded, 6357693400 is not 6357693399."""
    return TOLERANCE if any("." in text for text in texts) else EXACT_TOLERANCE


def nearly_equal(first: sympy.Expr, second: sympy.Expr, tolerance: sympy.Float = TOLERANCE) -> bool:
    return bool(abs(first - second) <= tolerance * max(abs(first), abs(second)))
