r"""One spelling for answers that differ in layout only: Unicode, fonts, spaces, delimiters, thousands separators.

Nothing here changes or drops a value. math-verify's own normalisation drops a trailing `\text{...}` whatever it says,
so that `42\text{ (or 43)}` equals 42 there. Here text stays, as `\text{...}`, and is later read as a unit or as words.
"""

import re
import unicodedata

from .brackets import is_balanced


SYMBOLS = r"""
− -  – -  — -  ‐ -  ‑ -  × \times  · \cdot  ⋅ \cdot  ÷ \div  ∕ /  ⁄ /  ≤ \le  ⩽ \le  ≥ \ge  ⩾ \ge  ≠ \neq
≈ \approx  ± \pm  ∓ \mp  ∞ \infty  π \pi  𝜋 \pi  θ \theta  ° ^\circ  º ^\circ  ∪ \cup  ∩ \cap  ∅ \emptyset
∈ \in  ∖ \setminus  ℝ \mathbb{R}  ℤ \mathbb{Z}  ℕ \mathbb{N}  ℚ \mathbb{Q}  ℂ \mathbb{C}  ′ '  ’ '  ‘ '
… \ldots  ⋯ \cdots  ， ,  。 .  ∫ \int  ∑ \sum  √ \sqrt  ∛ \sqrt[3]  ∜ \sqrt[4]
"""
UNICODE = str.maketrans(dict(re.findall(r"(\S) (\S+ ?)", SYMBOLS)) | dict.fromkeys("“”\u200b\ufeff\u2061\u2062", ""))
COMMANDS = {  # what stands for commands, given without their backslash
    name: spelling
    for spelling, names in {
        "": "boxed fbox",
        " ": "large Large LARGE huge Huge small tiny normalsize "
             "displaystyle textstyle scriptstyle limits nolimits left right middle hline quad qquad "
             "rm bf , ; : > !",
        r"\frac": "dfrac tfrac", r"\binom": "dbinom", r"\le ": "leq leqslant",
        r"\ge ": "geq geqslant", r"\neq ": "ne", "|": "vert lvert rvert mid",
        r"\lbrace ": "{", r"\rbrace ": "}", "%": "%", r"\usd ": "$", r"\emptyset ": "varnothing empty",
        r"\approx ": "simeq cong", r"\ldots ": "dots",
        r"\vec": "overrightarrow",
    }.items()
    for name in names.split()
} | {" ": " "}  # fmt: skip
COMMAND = re.compile(r"\\([A-Za-z]+|.)")
FUNCTIONS = (
    "arcsinh arccosh arctanh arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sin cos tan cot sec csc "
    "log ln lg exp gcd lcm max min det lim"
).split()
FONT = re.compile(
    r"(\\(?:text(?:bf|it|rm|sf|tt|sc|normal)?|math(?:rm|bf|it|sf|tt|normal)|operatorname\*?|mbox|hbox|boldsymbol|bm"
    r"|emph|underline))\s*\{((?:[^{}]|[\^_]\s*\{[^{}]*\})*)\}"
)
NO_LETTER = r"(?![A-Za-z])"
TYPED = r"(?<![\\A-Za-z])"  # without its backslash
# Patterns and what replaces them, in this order. Runs of spaces are one space before each table.
BEFORE_COMMANDS, BEFORE_FONTS, AFTER_FONTS = (
    [(re.compile(pattern), replacement) for pattern, replacement in table]
    for table in (
        (
            (r"(?<=\d)(?:\{,\}|\\text\{,\}|\\,|\\!\s?,?\s?(?:\\!)?|,\\!)\s?(?=\d{3}(?!\d))", ""),  # thousands in LaTeX
            (r"(?<!\\)\$|(?<!\\)\\[()\[\]]|\*\*(?=\s|$)|(?<!\S)\*\*|[`~]", " "),
            (r"\\(?:left|right)\s?\.|\\[bB]igg?[lr]?(?![A-Za-z])|\\hspace\*?\{[^{}]*\}", " "),
            (r"\\(?:text)?color\s?\{(?!white)[^{}]*\}|(?<!\\)\\\s?\Z", " "),
            (r"\\begin\s?\{cases\}([^&]*?)\\end\s?\{cases\}", r"\1"),
            (r"\\(?:begin|end)\s*\{(?:aligned|align\*?|gathered|split|equation\*?)\}", " "),
        ),
        (
            (r"\*\*", "^"),
            (rf"\\log\s?_\s?(?:e{NO_LETTER}|\{{\s?e\s?\}})", r"\\ln "),
            (r"\.\.\.", r"\\ldots "),
            (rf"\^\s?(?:\{{\s?\\(?:circ|degree)\s?\}}|\\(?:circ|degree){NO_LETTER})|\\degree{NO_LETTER}", r"^\\circ "),
            (r"\\(math[a-z]+|boldsymbol|bm)\s([A-Za-z])", r"\\\1{\2}"),
            (r"\{\s?([^{}]*?)\s?\\choose\s?([^{}]*?)\s?\}", r"\\binom{\1}{\2}"),
            (r"\\mathbb\{R\}\s?[\^_]\s?(?:\+|\{\s?\+\s?\})", r"(0,\\infty)"),
            (r"\\(d?dot|hat|bar|tilde|vec)\s([A-Za-z]|\\[a-z]+)", r"\\\1{\2}"),
            (r"\^\s?\{\s?\\prime\s?\}|\^\s?\\prime", "'"),
        ),
        (
            (rf"{TYPED}(arc(?:sin|cos|tan)|sinh|cosh|tanh|sin|cos|tan|log|ln|exp)(?=\s?[\d(\\^_]|\s[a-z]\b)",
             r"\\\1 "),
            (r"(^|[=(+\-*/,|<>])\s?\{\s?([A-Za-z]|\d+(?:\.\d+)?|\\[A-Za-z]+)\s?\}", r"\1\2 "),
            (rf"{TYPED}(pi|sqrt){NO_LETTER}", r"\\\1 "),
            (rf"{TYPED}(?:infinity|inf){NO_LETTER}", r"\\infty "),
            (r"(?<=\d)[eE]\+?(-?\d+)(?![\d.A-Za-z])", r"\\times 10^{\1}"),
            (r"(?<=\d)\s?[xX]\s?(?=10\s?\^)", r"\\times "),
            (r"(?<![\d}/.])(\d+)/(\d+)\s(?=[a-z]\b|\\(?!text|cdot|times|div|[lg]e|ne|approx|cup))", r"\\frac{\1}{\2}"),
            (r"(?<=\d)\s(\d+)\s?/\s?(\d+)(?!\d)", r"\\frac{\1}{\2}"),  # the mixed number "2 1/2"
            (r"(?<=\d)\s?\^?\s?(\{\s?)?(\\text\s?\{\s?)?(?:st|nd|rd|th)(?(2)\s?\}|\b)(?(1)\s?\})", ""),  # ordinals
            (r"(?<=[\d}])\s?\\text\s?\{\s?to\s?\}\s?(?=[\d\\])", ":"),  # the ratio 1 to 2
            (rf"\\frac\s?(\d|\\pi{NO_LETTER}|\s[A-Za-z])\s?(?=\{{|[A-Za-z\d])", r"\\frac{\1}"),
            (r"(\\frac\s?\{[^{}]*\})\s?([A-Za-z\d])", r"\1{\2}"),
        ),
    )
)  # fmt: skip
THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)")
THOUSANDS_SPACED = re.compile(r"(?<![\d.,] )(?<![\d.,])[1-9]\d{0,2}(?: \d{3})+(?![\d,])(?! \d)")
NESTED = r"(?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+"
UNBRACED = rf"(?:\(({NESTED})\)|(-?\d++(?:\.\d++)?|[A-Za-z]|\\(?!circ)[a-z]++)(?!\s?\{{))"
ROOT, POWER = (re.compile(rf"({sign}){UNBRACED}") for sign in (r"\\sqrt\s?(?:\[[^\]]*\]\s?)?", r"\^\s?"))


def normalize(text: str) -> str:
    """The normal spelling of an answer or a gold."""
    text = _from_unicode(text)
    if "\\begin" not in text:  # a doubled backslash; in a matrix it ends a row
        text = re.sub(r"\\\\(?=[A-Za-z$%{}])", r"\\", text)
    text = _replaced(text, BEFORE_COMMANDS)
    text = COMMAND.sub(lambda match: COMMANDS.get(match[1], match[0]), text)
    text = _replaced(text, BEFORE_FONTS)
    if "\\begin" not in text:  # rows of equations
        text = re.sub(r"\\\\\s?", ", ", text).replace("&", "")
    for _ in range(3):  # fonts nest: \textbf{\text{(B)}}
        text = FONT.sub(_font, text)
    text = _with_braces(_replaced(text, AFTER_FONTS))
    text = re.sub(r"\s+", " ", text).lstrip(" ,;:=").rstrip(" .,;:")
    while text.startswith("{") and text.endswith("}") and is_balanced(text[1:-1]):
        text = text[1:-1].strip()
    if THOUSANDS.match(text) or not re.search(r"[(\[{]|\\lbrace|, ", text):
        text = THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    if not re.search(r"[,;]", text):
        text = THOUSANDS_SPACED.sub(lambda match: match[0].replace(" ", ""), text)
    return text


def _replaced(text: str, table: list[tuple[re.Pattern, str]]) -> str:
    text = re.sub(r"\s+", " ", text)
    for pattern, replacement in table:
        text = pattern.sub(replacement, text)
    return text


def _from_unicode(text: str) -> str:
    if text.isascii():
        return text
    text = re.sub("[¼-¾⅐-⅞]", r" \g<0>", text)  # 2½ is 2 1/2
    text = re.sub("[⁰¹²³⁴-⁹⁺⁻ⁿ⁽⁾]+", r"^{\g<0>}", text)
    text = re.sub("[₀-₉₊₋ₙ]+", r"_{\g<0>}", text)
    return unicodedata.normalize("NFKC", text.translate(UNICODE)).translate(UNICODE)  # ⁻ is then − and -


def _font(match: re.Match) -> str:
    r"""A font around a number, a function or one letter is dropped; other words become `\text{...}`."""
    command, word = match.groups()
    if word in FUNCTIONS and (word not in ("min", "sec") or command == "\\operatorname"):  # minutes
        return f"\\{word} "
    if word == "infinity":
        return "\\infty "
    if re.fullmatch(r"[-+\d.,/()^ ]+|\\usd|[€£]|\d.*|\w*_.*", word):
        return f" {word} "
    if len(word) == 1 and not command.startswith("\\text"):
        return f" {word} "
    return f"\\text{{{word}}}"


def _with_braces(text: str) -> str:
    r"""`\sqrt(3)`, `\sqrt 12` and `x^(n+1)` with braces: people who leave them out mean the whole number."""
    for pattern in (ROOT, POWER):
        while (braced := pattern.sub(r"\1{\2\3}", text)) != text:
            text = braced
    return text
