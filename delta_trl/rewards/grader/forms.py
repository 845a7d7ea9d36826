r"""Refuses answers that are no final form, and what is too large to evaluate. Counts operations in the text.

A gold that is a numeral wants a numeral: `48 \div 2` and `\binom{8}{2}` leave the work to the grader. Any other gold
allows its own number of operations and one more.
"""

import re

import sympy

from .numerals import exact, is_fraction


MAX_DIGITS = 20_000
MAX_NESTING = 12  # sympy takes seconds for the value of deeper fractions
MAX_COMMANDS = 40

# Operations that leave the work to the grader. An answer may use one if the gold does.
WORK = {
    "integral": r"\\(?:i*int|oint)(?![A-Za-z])",
    "sum": r"\\(?:sum|prod)(?![A-Za-z])",
    "limit": r"\\lim(?:sup|inf)?(?![A-Za-z])",
    "determinant": r"\\det(?![A-Za-z])|\\begin\s*\{[vV]matrix\}",
    "gcd": r"\\(?:gcd|lcm|max|min)(?![A-Za-z])",
    "mod": r"\\[bp]?mod(?![A-Za-z])",
    "derivative": r"\\nabla|\\frac\s*\{\s*(?:d|\\partial)\s*[^{}]*(?:\{[^{}]*\}[^{}]*)*\}"
    r"\s*\{\s*(?:d|\\partial)\s*[A-Za-z\\]",
    "arithmetic": r"(?:^|[({=+-])\s*\d+\s*[-+]\s*\d+\s*(?=[-+)}]|$)"
    r"|(?<![\w.^{])\d+\s*\\(?:cdot|times)\s*\d+(?!\s*[\d.^])",
    "dots": r"\\[lcv]?dots",
    "rounding": r"\\(?:[lr]floor|[lr]ceil)",
}
# latex2sympy does not see these, or reads them as something else.
HIDING = {
    "hidden text": r"\\(?:[hv]?phantom|(?:text)?color|[bx]?cancel|sout|not|rule|href|tag|def|let|xrightarrow)",
    "subscript on a number": r"\d\s*\)?\s*_",
    "prime after a number": r"\d\s*'|\)\s*'",
    "question": r"\?",
}
HIDING_PATTERNS = {name: re.compile(pattern) for name, pattern in HIDING.items()}
WORK_PATTERNS = {name: re.compile(pattern) for name, pattern in WORK.items()}
OPERATION = re.compile(
    r"[+*/^!:]|(?<=[\w)}\]|!])\s*-|\|[^|]*\|"
    r"|\\(?:cdot|times|div|frac|sqrt|binom|pm|mp|exp|log|ln|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|operatorname|Gamma|zeta"
    r"|cup|cap|setminus)(?![A-Za-z])"
)
COMPLEX_INTEGER = re.compile(
    r"[-+]?\s*(?:\d+|(?:\d+\s*)?i)\s*(?:[-+]\s*(?:\d+|(?:\d+\s*)?i))?(?<!\d)|[-+]?\s*(?:\d+\s*)?i\s*[-+]\s*\d+"
)
DEGREES = re.compile(r"\^\\circ")
LONG_EXPONENT = re.compile(r"\^\s*\{?\s*[-+]?\s*\d{5,}")
TOWER = re.compile(r"\^\s*\{[^{}]*\d\s*\^")
BIG_FACTORIAL = re.compile(r"\d{5,}\s*\)?\s*!|!\s*\)?\s*!")
BIG_BINOMIAL = re.compile(r"\\binom\s*\{\s*\d{5,}")


class RefusedError(Exception):
    """The answer is refused; the message says why."""


def refuse_large_text(gold: str, answer: str) -> None:
    """Refuse what is dangerous to parse or to evaluate, or is not seen, unless the gold has it too."""
    _refuse(HIDING_PATTERNS, gold, answer)
    depth = deepest = 0
    for character in answer:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING or answer.count("\\") > max(MAX_COMMANDS, 2 * gold.count("\\")):
        raise RefusedError("too deeply nested")
    for pattern in (LONG_EXPONENT, TOWER, BIG_FACTORIAL, BIG_BINOMIAL):
        if pattern.search(answer) and not pattern.search(gold):
            raise RefusedError("too large to evaluate")
    if re.search(r"\d{40,}", answer) and not re.search(r"\d{30,}", gold):
        raise RefusedError("too large to evaluate")


def refuse_work(gold: str, answer: str) -> None:
    """Refuse an operation that stands for work, unless the gold has it too."""
    _refuse(WORK_PATTERNS, gold, answer)


def _refuse(patterns: dict[str, re.Pattern], gold: str, answer: str) -> None:
    for name, pattern in patterns.items():
        if pattern.search(answer) and not pattern.search(gold):
            raise RefusedError(f"no final form: {name}")


def refuse_unfinished(gold: str, answer: str) -> None:
    """Refuse an answer with operations that are still to be carried out."""
    if exact(answer) is None:
        refuse_work(gold, answer)
    if COMPLEX_INTEGER.fullmatch(gold) and not COMPLEX_INTEGER.fullmatch(answer):
        raise RefusedError("no final form: not a complex integer")
    value = exact(gold)
    if value is None:
        if operations(answer) > operations(gold) + 1:
            raise RefusedError("no final form: too many operations")
    elif exact(answer) is None:
        raise RefusedError("no final form: not a numeral")
    elif value.denominator == 1 and is_fraction(answer) and not is_fraction(gold):
        raise RefusedError("no final form: a fraction for an integer")


def operations(text: str) -> int:
    """The number of operations that are written out in a text. A numeral has none."""
    return 0 if exact(text) is not None else len(OPERATION.findall(DEGREES.sub("", text)))


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
