r"""LaTeX to sympy by latex2sympy2_extended, math-verify's parser, with symbols for what it reads otherwise."""

import functools
import re
import zlib

import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig

from .numerals import exact


LATEX = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none", equations=False
)
IMAGINARY = re.compile(r"(?<![A-Za-z\\_])i(?![A-Za-z])")
DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\\circ")
ODD_ROOT = re.compile(r"\\sqrt\s?\[(\d*[13579])\]\s?\{\s?-\s?(\d+)\s?\}")  # sympy takes a complex one
BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
GREEK_NAMES = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|upsilon|phi|chi|psi|omega"
    "|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Upsilon|Phi|Psi|Omega|aleph|ell|hbar"
)
GREEK = rf"\\(?:var)?(?:{GREEK_NAMES})(?![A-Za-z])"
DECORATION = rf"(?:\s*(?:_\s*(?:{BRACES}|\\?[A-Za-z]+|\d)|\^\s*(?:\{{\s*)?(?:\*|\\ast|\\dagger)(?:\s*\}})?|'+))"
# A name that is one symbol: decorated, accented, in words, or with an argument. Other commands are passed over whole.
NAME = re.compile(
    rf"(?P<name>(?<![\d.])\\(?:vec|hat|bar|d?dot|tilde|overline|widehat|math[a-z]+|text)\s*{BRACES}{DECORATION}*"
    rf"|\\(?:gcd|lcm)\s*\([^()]*(?<!\\)[A-Za-z][^()]*\)"
    rf"|\\frac\s*\{{\s*(?:d|\\partial)\s*(?:[A-Za-z]|{GREEK})\s*\}}\s*\{{\s*(?:d|\\partial)\s*(?:[A-Za-z]|{GREEK})\s*\}}"
    rf"|(?:[A-Za-z]|{GREEK}){DECORATION}+|[fghFGH]\s*\([A-Za-z\d](?:\s*,\s*[A-Za-z\d])*\)"
    r"|\\(?:gamma|aleph)(?![A-Za-z])|\\Gamma(?![A-Za-z]|\s*\())|\\[A-Za-z]+"
)


class UnreadableError(ValueError):
    """A text that is not mathematics, as far as latex2sympy can tell."""


def parse_together(*texts: str) -> list[sympy.Basic | sympy.MatrixBase]:
    """Parse texts that are compared: the letter i is the imaginary unit if it stands by itself in one of them."""
    is_complex = any(map(IMAGINARY.search, texts))
    return [parse(text, is_complex) for text in texts]


@functools.lru_cache(maxsize=4096)
def parse(text: str, is_complex: bool) -> sympy.Basic | sympy.MatrixBase:
    """
    Parse one value, without evaluating it.

    Raises:
        UnreadableError: If latex2sympy cannot read it.
    """
    if (value := exact(text)) is not None:
        return sympy.Rational(value)
    text = DEGREES.sub(r"{\\frac{\1\\pi}{180}}", text)
    text = ODD_ROOT.sub(r"(-\\sqrt[\1]{\2})", text)
    try:
        expression = latex2sympy(
            with_symbols(text),
            is_real=True,
            normalization_config=LATEX,
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
        decimals = expression.atoms(sympy.Float)
        expression = expression.xreplace({decimal: sympy.Rational(str(decimal)) for decimal in decimals})
    except MemoryError:
        raise
    except Exception as error:  # latex2sympy raises Exception itself, and whatever sympy raises on nonsense
        raise UnreadableError(text) from error
    if is_complex:
        return expression.subs({name: sympy.I for name in expression.free_symbols if name.name in ("i", "I")})
    return expression


def with_symbols(text: str) -> str:
    r"""Replace each decorated name (`E_1`, `v_{\text{max}}`, `a^*`), accent and text by one plain symbol."""

    def symbol(match: re.Match) -> str:
        if match["name"] is None:
            return match[0]
        name = re.sub(r"\\(?:text|mathrm)(?![A-Za-z])|[{}\s\\]", "", match[0])
        return f" Q_{{{zlib.crc32(name.encode())}}} "

    return NAME.sub(symbol, text)
