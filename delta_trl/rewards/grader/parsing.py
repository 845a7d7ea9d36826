"""Reading one value: LaTeX to sympy, and plain numbers to exact fractions without it."""

import functools
import re
import zlib
from fractions import Fraction
from typing import Any

import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig, normalize_latex


LATEX = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none", equations=False
)
IMAGINARY = re.compile(r"(?<![A-Za-z\\_])i(?![A-Za-z])")
OF_LETTERS = re.compile(r"\\(gcd|lcm)\s*\(([^()]*(?<!\\)[A-Za-z][^()]*)\)")
LETTER = r"\s*(?:[A-Za-z]|\\[a-z]+)\s*"
DERIVATIVE = re.compile(rf"\\frac\s*\{{\s*(d|\\partial){LETTER}\}}\s*\{{\s*\1{LETTER}\}}")
NO_CONSTANT = re.compile(  # accents stay as they are
    r"\\(?:vec|hat|bar|dot|ddot|tilde|overline|widehat|math[a-z]+|text)\s*\{[^{}]*\}"
    r"|(?<!_)(?P<letter>\\(?:gamma|aleph)(?![A-Za-z])(?:\s*_\s*(?:\{[^{}]*\}|\w))?|\\Gamma(?![A-Za-z]|\s*[(\[^_])"
    r"|(?<![A-Za-z\\])e\s*_\s*(?:\{[^{}]*\}|\w))"
)
REPEATING = re.compile(r"(-?)(\d*)\.(\d*)(?:\\(?:overline|bar|dot)\s*\{?(\d+)\}?|\((\d+)\))")
ELLIPSIS = re.compile(r"(-?)(\d*)\.(\d*?)(\d{1,6}?)\4{2,}\s*(?:\\[lc]?dots|\.\.\.)")
NUMBER = re.compile(r"([-+]?)\s*(\d+(?:\.\d*)?|\.\d+)")
RATIO = re.compile(
    r"([-+]?)\s*(?:\\frac\s*\{\s*([-+]?\s*\d+(?:\.\d+)?)\s*\}\s*\{\s*([-+]?\s*\d+(?:\.\d+)?)\s*\}"
    r"|(\d+(?:\.\d+)?)\s*/\s*([-+]?\d+(?:\.\d+)?))"
)
MIXED = re.compile(r"([-+]?)\s*(\d+)\s*(?:\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\})")


class UnreadableError(Exception):
    """A text that is not mathematics, as far as latex2sympy can tell."""


@functools.lru_cache(maxsize=4096)
def parse(text: str, is_complex: bool, lowercase: bool) -> sympy.Basic | sympy.MatrixBase:
    text = text.replace("\\lbrace", "\\{").replace("\\rbrace", "\\}")
    text = text.replace("\\\\", "\\\\ ")  # latex2sympy takes what follows the end of a row for a command
    if "\\begin" in text:  # and, in a matrix, the letter d for a differential
        text = re.sub(r"(?<![A-Za-z\\])d(?![A-Za-z])", "d_{0}", text)
    text = _plain_letters(opaque(text))
    text = re.sub(r"([A-Za-z])('+)", lambda match: f"{match[1]}_{{{'p' * len(match[2])}}}", text)
    try:
        expression = latex2sympy(
            normalize_latex(text, LATEX),
            is_real=not is_complex,
            convert_degrees=False,
            normalization_config=None,
            conversion_config=ConversionConfig(lowercase_symbols=lowercase),
        )
    except MemoryError:
        raise
    except Exception as error:  # latex2sympy raises Exception itself, and whatever sympy raises on nonsense
        raise UnreadableError(text) from error
    if not isinstance(expression, (sympy.Basic, sympy.MatrixBase)):
        raise UnreadableError(text)
    if is_complex and isinstance(expression, sympy.Expr):
        expression = expression.subs(
            {symbol: sympy.I for symbol in expression.free_symbols if symbol.name in ("i", "I")}
        )
    return expression if is_complex else _with_real_roots(expression)


def _with_real_roots(expression: Any) -> Any:
    """With odd roots of negative numbers that are real: sympy takes complex ones."""
    if not isinstance(expression, sympy.Expr) or not expression.args:
        return expression
    parts = [_with_real_roots(part) for part in expression.args]
    if isinstance(expression, sympy.Pow):
        base, exponent = parts
        if base.is_number and base.is_negative and exponent.is_Rational and exponent.q > 1 and exponent.q % 2:
            root = sympy.Pow(-base, exponent, evaluate=False)
            return sympy.Mul(-1, root, evaluate=False) if exponent.p % 2 else root
    if all(new is old for new, old in zip(parts, expression.args, strict=True)):
        return expression
    unevaluated = {"evaluate": False} if isinstance(expression, (sympy.Add, sympy.Mul, sympy.Pow)) else {}
    return expression.func(*parts, **unevaluated)


def opaque(text: str) -> str:
    r"""
    Put a symbol for each `\gcd(m, n)`, whose letters sympy takes for polynomials without a common factor, and for each
    derivative of a letter, `\frac{dV}{dr}`, which it takes for 0.
    """
    return DERIVATIVE.sub(lambda match: _symbol_of("D", match[0]), OF_LETTERS.sub(_symbol, text))


def _plain_letters(text: str) -> str:
    r"""
    With symbols for the letters that latex2sympy takes for something else: `e_1` for Euler's number, `\gamma` and a
    `\Gamma` that is no function for Euler's constant, or for the Γ function of what follows.
    """

    def symbol(match: re.Match) -> str:
        if match["letter"] is None:
            return match[0]
        name = _symbol_of("G", re.sub(r"[{}\s]", "", match[0]))
        return f"{{{name.strip()}}}" if text[: match.start()].rstrip().endswith("^") else name

    text = re.sub(r"\\Gamma\s+\(", r"\\Gamma(", text)
    return NO_CONSTANT.sub(symbol, text)


def _symbol(function: re.Match) -> str:
    arguments = ",".join(sorted(re.sub(r"\s+", "", function[2]).split(",")))
    return _symbol_of(function[1][0].upper(), arguments)


def _symbol_of(letter: str, text: str) -> str:
    return f" {letter}_{{{zlib.crc32(text.replace(' ', '').encode())}}} "


def is_complex_number(text: str) -> bool:
    """Whether the letter i stands in a text as a value of its own."""
    return IMAGINARY.search(text) is not None


def parse_both(gold: str, answer: str) -> tuple[sympy.Basic, sympy.Basic]:
    is_complex = any(map(is_complex_number, (gold, answer)))
    # R/r must not become 1, but "X = 5" may answer "x = 5".
    letters = [_letters(text) for text in (gold, answer)]
    same_case = letters[0] == letters[1] or not letters[0] & letters[1]
    lowercase = same_case and not any(map(_mixes_cases, letters))
    return parse(gold, is_complex, lowercase), parse(answer, is_complex, lowercase)


def _letters(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", text))) - set("eicC")  # constants


def _mixes_cases(letters: set[str]) -> bool:
    return any(letter.isupper() and letter.lower() in letters for letter in letters)


def fraction(text: str) -> Fraction | None:
    """The exact value of a plain number or fraction."""
    text = text.strip()
    if match := NUMBER.fullmatch(text):
        value = Fraction(match[2].rstrip(".") if not match[2].startswith(".") else "0" + match[2])
    elif match := RATIO.fullmatch(text):
        top, bottom = (Fraction((match[i] or match[j]).replace(" ", "")) for i, j in ((2, 4), (3, 5)))
        if bottom == 0:
            return None
        value = top / bottom
    elif match := MIXED.fullmatch(text):
        if int(match[3]) >= int(match[4]):
            return None
        value = int(match[2]) + Fraction(int(match[3]), int(match[4]))
    else:
        return repeating(text)
    return -value if match[1] == "-" else value


def repeating(text: str) -> Fraction | None:
    r"""The value of `0.1\overline{6}`, `0.1(6)` or `0.1666\ldots`."""
    if match := REPEATING.fullmatch(text):
        sign, whole, fixed, period = match[1], match[2], match[3], match[4] or match[5]
    elif match := ELLIPSIS.fullmatch(text):
        sign, whole, fixed, period = match.groups()
    else:
        return None
    value = Fraction(int((whole or "0") + fixed), 10 ** len(fixed))
    value += Fraction(int(period), 10 ** len(fixed) * (10 ** len(period) - 1))
    return -value if sign else value
