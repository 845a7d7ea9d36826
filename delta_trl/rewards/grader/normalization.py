r"""One spelling for answers that differ in layout only: Unicode, fonts, spaces, delimiters, thousands separators.

Nothing here changes or drops a value. math-verify's own normalisation drops a trailing `\text{...}` whatever it says,
so that `42\text{ (or 43)}` equals 42 there. Here text stays, as `\text{...}`, and is later read as a unit or as words.
"""

import re
import unicodedata
from fractions import Fraction


SYMBOLS = str.maketrans({
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": r"\div ",
    "∕": "/", "⁄": "/", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\neq ", "≈": r"\approx ",
    "±": r"\pm ", "∓": r"\mp ", "∞": r"\infty ", "π": r"\pi ", "𝜋": r"\pi ", "θ": r"\theta ", "°": r"^\circ ",
    "º": r"^\circ ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "∈": r"\in ", "∖": r"\setminus ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "′": "'",
    "’": "'", "‘": "'", "“": "", "”": "", "…": r"\ldots ", "⋯": r"\cdots ", "，": ",", "。": ".", "∫": r"\int ",
    "∑": r"\sum ", "\u200b": "", "\ufeff": "", "\u2061": "", "\u2062": "",
})  # fmt: skip
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ⁽⁾", "0123456789+-n()")
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n")
ROOTS = {"√": "\\sqrt ", "∛": "\\sqrt[3]", "∜": "\\sqrt[4]"}

FUNCTIONS = (
    "arcsinh arccosh arctanh arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sin cos tan cot sec csc "
    "log ln lg exp gcd lcm max min det lim"
).split()
FONT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|sc|normal)?|math(?:rm|bf|it|sf|tt|normal)|operatorname\*?|mbox|hbox|boldsymbol|bm"
    r"|emph|underline)\s*\{((?:[^{}]|[\^_]\s*\{[^{}]*\})*)\}"
)
NO_LETTER = r"(?![A-Za-z])"
NOT_AFTER = r"(?<![\\A-Za-z])"  # what is typed without its backslash
# Spellings and what replaces them, in this order. Runs of spaces are one space before each of them.
SPELLINGS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\{1,2}(?:boxed|fbox)\s*(?=\{)", ""),
        (r"(?<=\d)(?:\{,\}|\\text\{,\}|\\,|\\!\s?,?\s?(?:\\!)?|,\\!)\s?(?=\d{3}(?!\d))", ""),  # thousands in LaTeX
        (r"\\\$|(?<![\w}$\\)])\$(?=\s?[\d.][\d,.]*(?:\s|$)[^$]*$)", r"\\usd "),
        (r"\$|\\[()\[\]]|\*\*(?=\s|$)|(?<!\S)\*\*|`", " "),
        (r"\*\*", "^"),
        (r"\\begin\s*\{(?:aligned|align\*?|gathered|split|equation\*?)\}", " "),
        (r"\\end\s*\{(?:aligned|align\*?|gathered|split|equation\*?)\}", " "),
        (r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|left|right|middle|[bB]igg?[lrm]?|hline)"
         rf"{NO_LETTER}\.?", " "),
        (rf"\\(?:quad|qquad|enspace|thinspace){NO_LETTER}|(?<!\\)\\[,;:>! ]|~|\\hspace\*?\{{[^{{}}]*\}}", " "),
        (r"\\\{", r"\\lbrace "),
        (r"\\\}", r"\\rbrace "),
        (rf"\\lbrack{NO_LETTER}", "["),
        (rf"\\rbrack{NO_LETTER}", "]"),
        (rf"\\lg{NO_LETTER}", r"\\log"),
        (rf"\\log\s?_\s?(?:e{NO_LETTER}|\{{\s?e\s?\}})", r"\\ln "),
        (r"\\\\\s?\[\s?[\d.]+\s?(?:pt|em|ex|mm)\s?\]", r"\\\\ "),
        (rf"\\(?:[lr]vert|vert|mid){NO_LETTER}", "|"),
        (rf"\\[dtc]frac{NO_LETTER}", r"\\frac"),
        (rf"\\[dt]binom{NO_LETTER}", r"\\binom"),
        (r"\{\s?([^{}\\]+)\\choose(?![A-Za-z])([^{}]+)\}", r"\\binom{\1}{\2}"),
        (rf"\\(?:leq?q?(?:slant)?|leqq){NO_LETTER}|<=", r"\\le "),
        (rf"\\(?:geq?q?(?:slant)?|geqq){NO_LETTER}|>=", r"\\ge "),
        (rf"\\lt{NO_LETTER}", "<"),
        (rf"\\gt{NO_LETTER}", ">"),
        (rf"\\ne{NO_LETTER}|\\not\s?=", r"\\neq "),
        (rf"\\(?:varnothing|empty){NO_LETTER}", r"\\emptyset"),
        (rf"\\(?:simeq|doteq|thickapprox|cong){NO_LETTER}", r"\\approx"),
        (rf"\\(?:backslash|smallsetminus){NO_LETTER}", r"\\setminus"),
        (rf"\^\s?(?:\{{\s?\\(?:circ|degree)\s?\}}|\\(?:circ|degree){NO_LETTER})|\\degree{NO_LETTER}", r"^\\circ "),
        (rf"\\dots[cbmio]?{NO_LETTER}|\.\.\.", r"\\ldots "),
        (r"\\%", "%"),
        (rf"\\(?:rm|bf|it|sf|tt|cal){NO_LETTER}\s?", ""),
        (r"\\mathbb\s([A-Z])", r"\\mathbb{\1}"),
        (r"(\\in\s?|^\s?)\\mathbf\s?\{([NZQR])\}(?=\s?[\^_),}]|\s?$)", r"\1\\mathbb{\2}"),
        (rf"\\(?:R|reals){NO_LETTER}", r"\\mathbb{R}"),
        (r"\\mathbb\{R\}\s?[\^_]\s?(?:\+|\{\s?\+\s?\})", r"(0,\\infty)"),
        (r"\\(d?dot|hat|bar|tilde|vec)\s([A-Za-z]|\\[a-z]+)", r"\\\1{\2}"),
        (rf"\\overrightarrow{NO_LETTER}", r"\\vec"),
        (r"\^\s?\{\s?\\prime\s?\}|\^\s?\\prime", "'"),
    )
]  # fmt: skip
TYPED = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"{NOT_AFTER}(arc(?:sin|cos|tan)|sinh|cosh|tanh|sin|cos|tan|log|ln)(?=\s?[\d(\\^_]|\s[a-z]\b)", r"\\\1 "),
        (rf"{NOT_AFTER}pi{NO_LETTER}", r"\\pi "),
        (rf"{NOT_AFTER}(?:infinity|infty|inf|oo){NO_LETTER}", r"\\infty "),
        (rf"{NOT_AFTER}sqrt{NO_LETTER}", r"\\sqrt"),
        (r"(?<=\d)[eE]\+?(-?\d+)(?![\d.A-Za-z])", r"\\times 10^{\1}"),
        (r"(?<=\d)\s?[xX]\s?(?=10\s?\^)", r"\\times "),
        (r"(?<![\d}/.])(\d+)/(\d+)\s(?=[a-z]\b|\\(?!text|cdot|times|div|le|ge|neq|approx|cup))", r"\\frac{\1}{\2}"),
        (r"(?<=\d)\s(\d+)\s?/\s?(\d+)(?!\d)", r"\\frac{\1}{\2}"),  # the mixed number "2 1/2"
        (r"(?<=\d)\s?\^?\s?(?:(?:st|nd|rd|th)\b|\{\s?(?:\\text\s?\{)?\s?(?:st|nd|rd|th)\s?\}{1,2}"
         r"|\\text\s?\{\s?(?:st|nd|rd|th)\s?\})", ""),
        (r"(?<=[\d}])\s?\\text\s?\{\s?to\s?\}\s?(?=[\d\\])", ":"),  # the ratio 1 to 2
        (r"\\(frac|binom)\s?(\d)\s?(\d)", r"\\\1{\2}{\3}"),
        (r"\\frac\s?(\d|\\pi(?![A-Za-z])|\s[A-Za-z])\s?(?=\{|[A-Za-z\d])", r"\\frac{\1}"),
        (r"(\\frac\s?\{[^{}]*\})\s?([A-Za-z\d])", r"\1{\2}"),
        (r"\^\s?(-?\d{2,}|-\d)", r"^{\1}"),
    )
]  # fmt: skip
THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)")
THOUSANDS_SPACED = re.compile(r"(?<![\d.,] )(?<![\d.,])[1-9]\d{0,2}(?: \d{3})+(?![\d,])(?! \d)")
MATRIX = re.compile(r"\\begin\s?\{([pbBvV]?matrix|array)\}(?:\s?\{[clr| ]*\})?(.*?)\\end\s?\{\1\}")
BRACKET_COMMAND = re.compile(r"\\(begin|lbrace|langle|lfloor|lceil|end|rbrace|rangle|rfloor|rceil)(?![A-Za-z])")


def normalize(text: str) -> str:
    """The normal spelling of an answer or a gold."""
    if text.isascii() and text.isdigit():
        return text
    text = _from_unicode(text)
    if "\\begin" not in text:  # a doubled backslash; in a matrix it ends a row
        text = re.sub(r"\\\\(?=[A-Za-z$%{}])", r"\\", text)
    for pattern, replacement in SPELLINGS:
        text = pattern.sub(replacement, re.sub(r"\s+", " ", text))
    if "\\begin" not in text:  # rows of equations
        text = re.sub(r"\\\\\s", ", ", text).replace("&", "")
    for _ in range(3):  # fonts nest: \textbf{\text{(B)}}
        text = FONT.sub(_font, text)
    for pattern, replacement in TYPED:
        text = pattern.sub(replacement, re.sub(r"\s+", " ", text))
    text = _braces_after(_braces_after(text, r"\\sqrt\s?(?:\[[^\]]*\]\s?)?"), r"\^\s?")
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"^[\s,;:=]+", "", text).rstrip(" .,;:")
    while text.startswith("{") and closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    if THOUSANDS.match(text.lstrip("-+ ").removeprefix("\\usd ")) or not re.search(r"[(\[{]|\\lbrace|, ", text):
        text = THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    if not re.search(r"[,;]", text):
        text = THOUSANDS_SPACED.sub(lambda match: match[0].replace(" ", ""), text)
    return _rows(text)


def squeeze(text: str) -> str:
    """Without the spaces that mean nothing; "4 2" is not "42"."""
    return re.sub(r"\s+", "", re.sub(r"(?<=[\d.])\s+(?=[\d.])", "_", text))


def split_top_level(text: str, pattern: re.Pattern) -> list[str]:
    """Split where `pattern` matches outside all brackets and environments."""
    if not pattern.search(text):
        return [text]
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        if depth == 0 and (match := pattern.match(text, position)) and match.end() > position:
            parts.append(text[start:position])
            start = position = match.end()
            continue
        if match := BRACKET_COMMAND.match(text, position):
            depth += 1 if match[1] in ("begin", "lbrace", "langle", "lfloor", "lceil") else -1
            position = match.end()
            continue
        if text[position] == "\\":
            position += 2
            continue
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[position], 0)
        position += 1
    return [*parts, text[start:]]


def closing(text: str, opening: int) -> int:
    """Where the bracket opened at `opening` closes; -1 if nowhere."""
    depth = 0
    for position in range(opening, len(text)):
        if text[position] in "([{":
            depth += 1
        elif text[position] in ")]}":
            depth -= 1
            if depth == 0:
                return position
    return -1


def _from_unicode(text: str) -> str:
    if text.isascii():
        return text
    text = re.sub(r"[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒]", _fraction, text)
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ⁽⁾]+", lambda match: "^{" + match[0].translate(SUPERSCRIPTS) + "}", text)
    text = re.sub(r"[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]+", lambda match: "_{" + match[0].translate(SUBSCRIPTS) + "}", text)
    text = re.sub(r"[√∛∜]", lambda match: ROOTS[match[0]], text.translate(SYMBOLS))
    return unicodedata.normalize("NFKC", text)


def _fraction(match: re.Match) -> str:
    value = Fraction(unicodedata.numeric(match[0])).limit_denominator(10)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _font(match: re.Match) -> str:
    r"""A font around a letter, a number or a function is dropped; other words become `\text{...}`."""
    command, word = match[0], match[1].strip()
    is_minutes = word == "min" and not re.match(r"\s*[({_\\]", match.string[match.end() :])
    if word in FUNCTIONS and not is_minutes and ("text" not in command[:6] or word in ("gcd", "lcm")):
        return f"\\{word} "
    if not word or re.fullmatch(r"[-+\d.,/()^ ]+", word):
        return f" {word} "
    if len(word) == 1 and command.startswith(("\\mathbf", "\\boldsymbol", "\\bm", "\\mathit")):
        return f" {word} "
    if len(word) == 1 and command.startswith("\\mathrm") and word in "eidx":
        return word
    return f"\\text{{{match[1]}}}"


def _braces_after(text: str, command: str) -> str:
    r"""`\sqrt(3)`, `\sqrt 12` and `x^(n+1)` with braces: people who leave them out mean the whole number."""
    pattern = re.compile(
        rf"{command}(?:(?P<bracket>\()|(?P<value>\d++(?:\.\d++)?|[A-Za-z]|\\(?!circ)[a-z]++)(?!\s?\{{))"
    )
    position = 0
    while match := pattern.search(text, position):
        position = match.end()
        if match["value"]:
            text = f"{text[: match.start('value')]}{{{match['value']}}}{text[match.end() :]}"
        elif (end := closing(text, match.end() - 1)) > 0:
            text = f"{text[: match.end() - 1]}{{{text[match.end() : end]}}}{text[end + 1 :]}"
    return text


def _rows(text: str) -> str:
    r"""Matrices as tuples of rows: `((1, 2), (3, 4))`; a single row or column is a tuple."""

    def rows(match: re.Match) -> str:
        if match[1] in ("vmatrix", "Vmatrix"):
            return match[0]
        cells = [[cell.strip() for cell in row.split("&")] for row in match[2].split("\\\\") if row.strip()]
        if 1 in (len(cells), *map(len, cells)):
            return f"({', '.join(cell for row in cells for cell in row)})"
        return f"({', '.join('(' + ', '.join(row) + ')' for row in cells)})"

    found = MATRIX.search(text)
    if not found:
        return text
    around = text[: found.start()] + text[found.end() :]
    if re.fullmatch(r"\s*(?:[A-Za-z]\w*\s*=\s*)?[(\[]?\s*[)\]]?\s*", around):  # array has its brackets outside
        name = around.rpartition("=")[0]
        return (f"{name}= " if name else "") + rows(found)
    return MATRIX.sub(rows, text) if split_top_level(text, re.compile(",|;"))[1:] else text
