r"""Answers that are refused before anything is evaluated: restatements of the problem, and what is too large."""

import re

import sympy

from .normalization import split_top_level


MAX_DIGITS = 20_000
MAX_NESTING = 20

# Operations that leave the work to the grader. An answer may use one if the gold does.
PATTERNS = {
    "integral": r"\\(?:i*int|oint|intop)",
    "sum": r"\\sum",
    "product": r"\\prod",
    "limit": r"\\lim(?:sup|inf)?",
    "determinant": r"\\det|\\begin\s*\{(?:vmatrix|Vmatrix)\}",
    "gcd": r"\\gcd|\\lcm|(?<![A-Za-z])(?:gcd|lcm)(?=\s*\()|\\text\s*\{\s*(?:gcd|lcm)",
    "extremum": r"\\max|\\min|(?<![A-Za-z])(?:max|min)(?=\s*\()",
    "mod": r"\\[bp]?mod",
    "floor": r"\\lfloor|\\lceil|\\floor|\\ceil",
    "absolute value": r"\||\\abs|\\l?vert",
    "logarithm": r"\\log|\\ln|\\lg",
    "trigonometry": r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)(?!h)",
    "hyperbolic": r"\\(?:arc|ar)?(?:sinh|cosh|tanh|coth)",
    "dots": r"\\[lcv]?dots[cbmio]?|\.\.\.",
    "derivative": r"\\frac\s*\{\s*(?:d|\\partial)\s*\}\s*\{\s*(?:d|\\partial)\s*[A-Za-z\\]|\\nabla\b",
    "gamma": r"\\Gamma\s*\(|\\zeta|\\operatorname",
    "transform": r"\\xrightarrow",
    "negation": r"\\neg|\\lnot",
}
OPERATIONS = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}
IMPLIED = {"hyperbolic": re.compile(r"e\s*\^|\\exp|\\log|\\ln"), "logarithm": re.compile(r"\\ar\w*h(?![A-Za-z])")}
HIDDEN = re.compile(
    r"\\(?:phantom|hphantom|vphantom|color|textcolor|cancel|sout|xcancel|bcancel|not|rule|href|tag|def|let)"
)
# The angle with a given sine is a closed form of a multiple of π, if it is all that the answer says.
NUMBER_ARGUMENT = r"(?:-?\s*(?:[\d./\s]|\\(?:frac|sqrt)(?![A-Za-z])|[{}])+)"
ANGLE = re.compile(
    r"-?\s*\\(?:arc(?:sin|cos|tan|cot|sec|csc)|(?:sin|cos|tan|cot|sec|csc)\s*\^\s*\{?\s*-\s*1\s*\}?)\s*"
    rf"(?:\(\s*{NUMBER_ARGUMENT}\)|{NUMBER_ARGUMENT})\s*"
)
IMAGINARY = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
IMAGINARY_PART = re.compile(r"0\s*[-+][^-+]*|[-+]?[^-+]+[-+]\s*0")  # 0 + 3i and 3i + 0 give both parts
ADDED_ZERO = re.compile(r"[-+]\s*0(?![\d.,i]|\s*i)|(?<![\d.,])0\s*\+")
LONG_EXPONENT = re.compile(r"\^\s*\{?\s*[-+]?\s*\d{5,}")
TOWER = re.compile(r"\^\s*\{[^{}]*\d\s*\^")
BIG_FACTORIAL = re.compile(r"\d{5,}\s*\)?\s*!|!\s*\)?\s*!")
BIG_BINOMIAL = re.compile(r"\\binom\s*\{\s*\d{5,}|\d{5,}\s*\\choose")


class RefusedError(Exception):
    """An answer that is not considered, and why."""


def refuse_shape(gold: str, answer: str) -> None:
    """Refuse what is dangerous to parse or to evaluate, unless the gold has it too."""
    depth = deepest = 0
    for character in answer:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING or len(re.findall(r"\\(?:frac|sqrt|binom)", answer)) > 30:
        raise RefusedError("too deeply nested")
    if len(re.findall(r"\\(?:cup|cap|setminus)", answer)) > 20:
        raise RefusedError("too many sets")
    if re.search(r"\d\s*'", answer) and "'" not in gold:
        raise RefusedError("a prime after a number")
    if re.search(r"\d\s*\)?\s*_", answer) and not re.search(r"\d\s*\)?\s*_", gold):
        raise RefusedError("a subscript on a number")  # latex2sympy ignores it
    if HIDDEN.search(answer):
        raise RefusedError("hidden or struck out text")
    for pattern in (LONG_EXPONENT, TOWER, BIG_FACTORIAL, BIG_BINOMIAL):
        if pattern.search(answer) and not pattern.search(gold):
            raise RefusedError("too large to evaluate")
    if len(re.findall(r"\d{40,}", answer)) and not re.search(r"\d{30,}", gold):
        raise RefusedError("too large to evaluate")


def refuse_restatement(gold: str, answer: str) -> None:
    """Refuse an operation left undone which the gold does not have."""
    for name, pattern in OPERATIONS.items():
        if pattern.search(answer) and not pattern.search(gold):
            implied = IMPLIED.get(name)
            if name == "trigonometry" and "\\pi" in gold and ANGLE.fullmatch(answer):
                continue
            if not (implied and implied.search(gold)):
                raise RefusedError(f"restates the problem: {name}")


def refuse_zeros(gold: str, answer: str) -> None:
    """Refuse a zero that is added, and the real part of a complex number in two: latex2sympy drops them unseen."""
    if IMAGINARY.search(gold):
        if IMAGINARY_PART.fullmatch(answer.strip()):
            return
        terms = [term.strip() for term in split_top_level(answer, re.compile(r"[-+]"))]
        if sum(bool(re.fullmatch(r"[\d.]+", term)) for term in terms) > 1:
            raise RefusedError("restates the problem: arithmetic")
    if ADDED_ZERO.search(answer) and not ADDED_ZERO.search(gold):
        raise RefusedError("restates the problem: arithmetic")


def refuse_symbols(gold: sympy.Basic, answer: sympy.Basic) -> None:
    """Refuse variables that the gold does not have: `42 + x - x` is not an answer to what a number is."""
    if isinstance(gold, sympy.Expr) and getattr(answer, "free_symbols", set()) - gold.free_symbols:
        raise RefusedError("holds a variable")


def refuse_arithmetic(gold: sympy.Basic | sympy.MatrixBase, answer: sympy.Basic | sympy.MatrixBase) -> None:
    """
    Refuse a sum or product of plain numbers where the gold is one number: `40 + 2` for 42.

    Of what holds several values, matrices and inequalities, the parts without variables are looked at.
    """
    if isinstance(gold, sympy.Number) or not (isinstance(gold, sympy.Expr) or is_undone(gold)):
        if is_undone(answer):
            raise RefusedError("restates the problem: arithmetic")


def is_undone(expression: sympy.Basic | sympy.MatrixBase) -> bool:
    r"""Whether a sum without variables holds like terms (`40 + 2`, `42 + \pi - \pi`), or a product several numbers."""
    for part in sympy.preorder_traversal(expression):
        if not isinstance(part, (sympy.Add, sympy.Mul)) or part.free_symbols:
            continue
        if part.is_Add and len({_factors(term) for term in part.args}) < len(part.args):
            return True
        # -1 writes the sign, 2.8 * 10^1 is one number
        numbers = [factor for factor in part.args if _is_plain(factor) and factor != -1 and factor.args[:1] != (10,)]
        if part.is_Mul and len(numbers) > 1:
            return True
    return False


def _factors(term: sympy.Basic) -> tuple[str, ...]:
    """What a term of a sum is a multiple of; nothing if it is a plain number."""
    return tuple(sorted(str(factor) for factor in (term.args if term.is_Mul else [term]) if not _is_plain(factor)))


def _is_plain(factor: sympy.Basic) -> bool:
    """Whether it is a number that is written out; `40^1` and `15\\%` are."""
    if isinstance(factor, sympy.UnevaluatedExpr) or (factor.is_Pow and factor.args[1] in (0, 1)):
        return factor.args[0].is_Number
    return factor.is_Number


def refuse_large(expression: sympy.Basic) -> None:
    """Refuse an expression with a value of more than `MAX_DIGITS` digits somewhere inside."""
    if isinstance(expression, sympy.Basic) and _log10(expression) > MAX_DIGITS:
        raise RefusedError("too large to evaluate")


def _log10(expression: sympy.Basic) -> float:
    """An upper bound of log10 of the absolute value, or of the digits needed. Symbols count as one digit."""
    if isinstance(expression, sympy.Integer):
        return 0.302 * int(expression).bit_length()
    if isinstance(expression, sympy.Rational):
        return 0.302 * max(int(expression.p).bit_length(), int(expression.q).bit_length())
    inner = [_log10(argument) for argument in expression.args if isinstance(argument, sympy.Basic)]
    largest = max(inner, default=1.0)
    if largest > MAX_DIGITS:
        return largest
    if isinstance(expression, sympy.Pow):
        base, exponent = expression.args
        if exponent.free_symbols or (base.free_symbols and inner[1] < 3):
            return largest
        return max(inner[0], 0.31) * 10.0 ** min(inner[1], 12)
    if isinstance(expression, (sympy.factorial, sympy.gamma)):
        return 10.0 ** min(inner[0], 12) * max(inner[0], 1.0)
    if isinstance(expression, sympy.binomial):
        return 10.0 ** min(inner[0], 12) * 0.302
    if isinstance(expression, (sympy.Mul, sympy.Add)):
        return sum(inner)
    return largest
