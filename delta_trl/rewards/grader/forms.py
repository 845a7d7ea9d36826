"""The operations that are written out in a text, and what is too large to evaluate."""

import re
from collections.abc import Iterable

from .brackets import depths
from .numerals import exact


MAX_NESTING = 12  # sympy takes seconds for the value of deeper fractions

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
    "gamma": r"\\Gamma\s*\(",
}
# latex2sympy does not see the first of these, or reads them as something else. The others are large.
REFUSED = {
    "hidden text": r"\\(?:[hv]?phantom|(?:text)?color|[bx]?cancel|sout|not|rule|href|tag|def|let|xrightarrow)",
    "subscript on a number": r"\d\s*\)?\s*_",
    "prime after a number": r"\d\s*'|\)\s*'",
    "question": r"\?",
    "too long an exponent": r"\^\s*\{?\s*[-+]?\s*\d{5,}",
    "tower": r"\^\s*\{[^{}]*\d\s*\^",
    "too large a factorial": r"\d{5,}\s*\)?\s*!|!\s*\)?\s*!",
    "too large a binomial": r"\\binom\s*\{\s*\d{5,}",
    "too long a number": r"\d{40,}",
}
OPERATION = re.compile(
    r"[+*/^!:]|(?<=[\w)}\]|!])\s*-|\|[^|]*\|"
    r"|\d\s*\)\s*\(\s*\d"  # numbers side by side are a product
    r"|\\(?:cdot|times|div|frac|sqrt|binom|pm|mp|exp|log|ln|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|operatorname|zeta"
    r"|cup|cap|setminus)(?![A-Za-z])"
)
# Degrees, and the sign of a product that could be left out.
NO_OPERATION = re.compile(r"\^\\circ|(?<=\d)\s*(?:\\(?:cdot|times)\s*|\*)(?=\s*(?:[A-Za-z(]|\\(?!frac)))")


class RefusedError(Exception):
    """The answer is refused; the message says why."""


def work(texts: Iterable[str]) -> set[str]:
    """The kinds of operations in texts that leave the work to the grader."""
    return {name for name, pattern in WORK.items() if any(re.search(pattern, text) for text in texts)}


def operations(text: str) -> int:
    """The number of operations that are written out in a text. A numeral has none."""
    return 0 if exact(text) is not None else len(OPERATION.findall(NO_OPERATION.sub("", text)))


def refuse_large_text(gold: str, answer: str) -> None:
    """Refuse what is dangerous to parse or to evaluate, or is not seen, unless the gold has it too."""
    for reason, pattern in REFUSED.items():
        if re.search(pattern, answer) and not re.search(pattern, gold):
            raise RefusedError(reason)
    if max(depths(answer)) > MAX_NESTING:
        raise RefusedError("too deeply nested")
