r"""Refuses answers that are no final form, and what is too large to evaluate. Counts operations in the text.

A gold that is a numeral wants a numeral: `48 \div 2` and `\binom{8}{2}` leave the work to the grader. Any other gold
allows its own number of operations and one more.
"""

import re

from .brackets import depths
from .numerals import exact, is_fraction


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
LARGE = {
    "too long an exponent": r"\^\s*\{?\s*[-+]?\s*\d{5,}",
    "tower": r"\^\s*\{[^{}]*\d\s*\^",
    "too large a factorial": r"\d{5,}\s*\)?\s*!|!\s*\)?\s*!",
    "too large a binomial": r"\\binom\s*\{\s*\d{5,}",
    "too long a number": r"\d{40,}",
}
OPERATION = re.compile(
    r"[+*/^!:]|(?<=[\w)}\]|!])\s*-|\|[^|]*\|"
    r"|\\(?:cdot|times|div|frac|sqrt|binom|pm|mp|exp|log|ln|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|operatorname|Gamma|zeta"
    r"|cup|cap|setminus)(?![A-Za-z])"
)
# Degrees, and the sign of a product that could be left out.
NO_OPERATION = re.compile(r"\^\\circ|(?<=\d)\s*(?:\\(?:cdot|times)\s*|\*)(?=\s*(?:[A-Za-z(]|\\(?!frac)))")
COMPLEX_INTEGER = re.compile(r"(?=.*i)[-+]?\s*(?:\d+|(?:\d+\s*)?i)\s*(?:[-+]\s*(?:\d+|(?:\d+\s*)?i))?")


class RefusedError(Exception):
    """The answer is refused; the message says why."""


def refuse(operations: dict[str, str], gold: str, answer: str) -> None:
    """Refuse an answer with one of these operations, unless the gold has it too."""
    for name, pattern in operations.items():
        if re.search(pattern, answer) and not re.search(pattern, gold):
            raise RefusedError(name)


def refuse_large_text(gold: str, answer: str) -> None:
    """Refuse what is dangerous to parse or to evaluate, or is not seen, unless the gold has it too."""
    refuse(HIDING | LARGE, gold, answer)
    if max(depths(answer)) > MAX_NESTING or answer.count("\\") > max(MAX_COMMANDS, 2 * gold.count("\\")):
        raise RefusedError("too deeply nested")


def refuse_unfinished(gold: str, answer: str) -> None:
    """Refuse an answer with operations that are still to be carried out."""
    value, is_numeral = exact(gold), exact(answer) is not None
    if not is_numeral:
        refuse(WORK, gold, answer)
    if COMPLEX_INTEGER.fullmatch(gold) and not (is_numeral or COMPLEX_INTEGER.fullmatch(answer)):
        raise RefusedError("not a complex integer")
    if value is None:
        refuse_more_operations([gold], [answer], 1)
    elif not is_numeral:
        raise RefusedError("not a numeral")
    elif value.denominator == 1 and is_fraction(answer) and not is_fraction(gold):
        raise RefusedError("a fraction for an integer")


def refuse_more_operations(gold: list[str], answer: list[str], more: int) -> None:
    """Refuse parts of an answer that have together more operations than those of the gold, and `more`."""
    if sum(map(operations, answer)) > sum(map(operations, gold)) + more:
        raise RefusedError("too many operations")


def operations(text: str) -> int:
    """The number of operations that are written out in a text. A numeral has none."""
    return 0 if exact(text) is not None else len(OPERATION.findall(NO_OPERATION.sub("", text)))
