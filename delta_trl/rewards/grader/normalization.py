r"""One spelling for answers that differ in layout only: Unicode, fonts, spaces, delimiters, thousands separators.

Nothing here changes or drops a value. math-verify's own normalisation drops a trailing `\text{...}` whatever it says,
so that `42\text{ (or 43)}` equals 42 there. Here text stays, as `\text{...}`, and is later read as a unit or as words.
"""

import re
import unicodedata
from typing import Any

from .brackets import is_balanced


SYMBOLS = r"""
− -  – -  — -  ‐ -  ‑ -  × \times  · \cdot  ⋅ \cdot  ÷ \div  ∕ /  ⁄ /  ≤ \le  ⩽ \le  ≥ \ge  ⩾ \ge  ≠ \neq
≈ \approx  ± \pm  ∓ \mp  ∞ \infty  π \pi  𝜋 \pi  θ \theta  ° ^\circ  º ^\circ  ∪ \cup  ∩ \cap  ∅ \emptyset
∈ \in  ∖ \setminus  ℝ \mathbb{R}  ℤ \mathbb{Z}  ℕ \mathbb{N}  ℚ \mathbb{Q}  ℂ \mathbb{C}  ′ '  ’ '  ‘ '
… \ldots  ⋯ \cdots  ， ,  。 .  ∫ \int  ∑ \sum  √ \sqrt  ∛ \sqrt[3]  ∜ \sqrt[4]
"""
UNICODE = str.maketrans(dict(re.findall(r"(\S) (\S+ ?)", SYMBOLS)) | dict.fromkeys("“”\u200b\ufeff\u2061\u2062", ""))
# Commands without their backslash: those that only set the layout, and those with another spelling, after it
LAYOUT = """
boxed fbox large Large LARGE huge Huge small tiny normalsize displaystyle textstyle scriptstyle limits nolimits
left right middle hline quad qquad rm bf , ; : > !
"""
SPELLINGS = r"""
\frac dfrac tfrac
\binom dbinom
\le leq leqslant
\ge geq geqslant
\neq ne
\lbrace {
\rbrace }
\usd $
\emptyset varnothing empty
\approx simeq cong
\ldots dots
\vec overrightarrow
| vert lvert rvert mid
% %
"""
COMMANDS = dict.fromkeys([" ", *LAYOUT.split()], " ")
for row in SPELLINGS.strip().splitlines():
    spelling, *names = row.split()
    COMMANDS |= dict.fromkeys(names, f"{spelling} ")
FUNCTIONS = (
    "arcsinh arccosh arctanh arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sin cos tan cot sec csc "
    "log ln lg exp gcd lcm max min det lim"
).split()


def _font(match: re.Match) -> str:
    r"""A font around a number, a function or one letter is dropped; other words become `\text{...}`."""
    command, word = match.groups()
    if word in FUNCTIONS and (word not in ("min", "sec") or command == "\\operatorname"):  # minutes
        return f"\\{word} "
    is_letter = len(word) == 1 and not command.startswith("\\text")
    if is_letter or re.fullmatch(r"[-+\d.,/()^ ]+|\\usd ?|[€£]|\d.*|\w*_.*", word):
        return f" {word} "
    return f"\\text{{{word}}}"


FONT = (
    r"(\\(?:text(?:bf|it|rm|sf|tt|sc|normal)?|math(?:rm|bf|it|sf|tt|normal)|operatorname\*?|mbox|hbox|boldsymbol|bm"
    r"|emph|underline))\s*\{((?:[^{}]|[\^_]\s*\{[^{}]*\})*)\}"
)
SPACES = (r"\s+", " ")
# Patterns and what replaces them, in this order: of Unicode; before and after the rows of equations are joined
SCRIPTS = (
    ("[¼-¾⅐-⅞]", r" \g<0>"),  # 2½ is 2 1/2
    ("[⁰¹²³⁴-⁹⁺⁻ⁿ⁽⁾]+", r"^{\g<0>}"),
    ("[₀-₉₊₋ₙ]+", r"_{\g<0>}"),
)
BEFORE_ROWS = (
    SPACES,
    (r"(?<=\d)(?:\{,\}|\\text\{,\}|\\,|\\!\s?,?\s?(?:\\!)?|,\\!)\s?(?=\d{3}(?!\d))", ""),  # thousands in LaTeX
    (r"(?<!\\)\$|(?<!\\)\\[()\[\]]|\*\*(?=\s|$)|(?<!\S)\*\*|[`~]", " "),
    (r"\\(?:left|right)\s?\.|\\[bB]igg?[lr]?(?![A-Za-z])|\\hspace\*?\{[^{}]*\}", " "),
    (r"\\(?:text)?color\s?\{(?!white)[^{}]*\}|(?<!\\)\\\s?\Z", " "),
    (r"\\begin\s?\{cases\}([^&]*?)\\end\s?\{cases\}", r"\1"),
    (r"\\(?:begin|end)\s*\{(?:aligned|align\*?|gathered|split|equation\*?)\}", " "),
    (r"\\([A-Za-z]+|.)", lambda match: COMMANDS.get(match[1], match[0])),
    SPACES,
    (r"\*\*", "^"),
    (r"\\log\s?_\s?(?:e(?![A-Za-z])|\{\s?e\s?\})", r"\\ln "),
    (r"\.\.\.", r"\\ldots "),
    (r"\^\s?(?:\{\s?\\(?:circ|degree)\s?\}|\\(?:circ|degree)(?![A-Za-z]))|\\degree(?![A-Za-z])", r"^\\circ "),
    (r"\\(math[a-z]+|text|boldsymbol|bm)\s([A-Za-z])", r"\\\1{\2}"),
    (r"\{\s?([^{}]*?)\s?\\choose\s?([^{}]*?)\s?\}", r"\\binom{\1}{\2}"),
    (r"\\mathbb\{R\}\s?[\^_]\s?(?:\+|\{\s?\+\s?\})", r"(0,\\infty)"),
    (r"\\(d?dot|hat|bar|tilde|vec)\s?((?<=\s)[A-Za-z]|\\[a-z]+)", r"\\\1{\2}"),
    (r"\^\s?\{\s?\\prime\s?\}|\^\s?\\prime", "'"),
)
AFTER_ROWS = (
    *[(FONT, _font)] * 3,  # fonts nest: \textbf{\text{(B)}}
    SPACES,
    (r"(?<![\\A-Za-z])(arc(?:sin|cos|tan)|sinh|cosh|tanh|sin|cos|tan|log|ln|exp)(?=\s?[\d(\\^_]|\s[a-z]\b)", r"\\\1 "),
    (r"(^|[=(+\-*/,|<>])\s?\{\s?([A-Za-z]|\d+(?:\.\d+)?|\\[A-Za-z]+)\s?\}", r"\1\2 "),
    (r"(?<![\\A-Za-z])(pi|sqrt)(?![A-Za-z])", r"\\\1 "),
    (r"(?<![\\A-Za-z])(?:infinity|inf)(?![A-Za-z])|\\text\{infinity\}", r"\\infty "),
    (r"(?<=\d)[eE]\+?(-?\d+)(?![\d.A-Za-z])", r"\\times 10^{\1}"),
    (r"(?<=\d)\s?[xX]\s?(?=10\s?\^)", r"\\times "),
    (r"(?<![\d}/.])(\d+)/(\d+)\s(?=[a-z]\b|\\(?!text|cdot|times|div|[lg]e|ne|approx|cup))", r"\\frac{\1}{\2}"),
    (r"(?<=\d)\s?\^?\s?(\{\s?)?(\\text\s?\{\s?)?(?:st|nd|rd|th)(?(2)\s?\}|\b)(?(1)\s?\})", ""),  # ordinals
    (r"(?<=[\d}])\s?\\text\s?\{\s?to\s?\}\s?(?=[\d\\])", ":"),  # the ratio 1 to 2
    (r"\\frac\s?(\d|\\pi(?![A-Za-z])|\s[A-Za-z])\s?(?=\{|[A-Za-z\d])", r"\\frac{\1}"),
    (r"(\\frac\s?\{[^{}]*\})\s?([A-Za-z\d])", r"\1{\2}"),
)
THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)")
THOUSANDS_SPACED = re.compile(r"(?<![\d.,] )(?<![\d.,])[1-9]\d{0,2}(?: \d{3})+(?![\d,])(?! \d)")
NESTED = r"(?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+"
# `\sqrt(3)`, `\sqrt 12`, `x^(n+1)`: people who leave braces out mean the whole number
UNBRACED = re.compile(
    r"(\\sqrt\s?(?:\[[^\]]*\]\s?)?|\^\s?)"
    rf"(?:\(({NESTED})\)|(-?\d++(?:\.\d++)?|[A-Za-z]|\\(?!circ)[a-z]++)(?!\s?\{{))"
)


def normalize(text: str) -> str:
    """The normal spelling of an answer or a gold."""
    if not text.isascii():
        text = _replaced(text, SCRIPTS).translate(UNICODE)
        text = unicodedata.normalize("NFKC", text).translate(UNICODE)  # ⁻ is then − and -
    if "\\begin" not in text:  # a doubled backslash; in a matrix it ends a row
        text = re.sub(r"\\\\(?=[A-Za-z$%{}])", r"\\", text)
    text = _replaced(text, BEFORE_ROWS)
    if "\\begin" not in text:  # rows of equations
        text = re.sub(r"\\\\\s?", ", ", text).replace("&", "")
    text = _replaced(text, AFTER_ROWS)
    while (braced := UNBRACED.sub(r"\1{\2\3}", text)) != text:
        text = braced
    text = re.sub(r"\s+", " ", text).lstrip(" ,;:=").rstrip(" .,;:")
    while text.startswith("{") and text.endswith("}") and is_balanced(text[1:-1]):
        text = text[1:-1].strip()
    if THOUSANDS.match(text) or not re.search(r"[(\[{]|\\lbrace|, ", text):
        text = THOUSANDS.sub(_digits, text)
    if not re.search(r"[,;]", text):
        text = THOUSANDS_SPACED.sub(_digits, text)
    return text


def _digits(match: re.Match) -> str:
    return re.sub("[, ]", "", match[0])


def _replaced(text: str, table: tuple[tuple[str, Any], ...]) -> str:
    for pattern, replacement in table:
        text = re.sub(pattern, replacement, text)
    return text
