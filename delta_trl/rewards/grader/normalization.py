r"""One spelling for answers that differ in layout only: Unicode, fonts, spaces, delimiters, thousands separators.

Nothing here changes or drops a value. math-verify's own normalisation drops a trailing `\text{...}` whatever it says,
so there `42\text{ (or 43)}` equals 42. Here text stays, as `\text{...}` or as plain words, and is later read as a unit
or as words.
"""

# ruff: noqa: E501 (tables of look-alikes)
import re
import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction


SYMBOLS = str.maketrans({
    "−": "-", "–": "-", "—": "-", "﹣": "-", "‐": "-", "‑": "-", "×": r"\times ", "✕": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ", "•": r"\cdot ", "÷": r"\div ", "∕": "/", "⁄": "/", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ",
    "⩾": r"\ge ", "≠": r"\neq ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "∞": r"\infty ", "π": r"\pi ",
    "𝜋": r"\pi ", "θ": r"\theta ", "°": r"^\circ ", "º": r"^\circ ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ",
    "∈": r"\in ", "∖": r"\setminus ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}", "∠": r"\angle ", "△": r"\triangle ", "→": r"\to ", "⇒": r"\Rightarrow ", "′": "'", "’": "'",
    "‘": "'", "“": "", "”": "", "…": r"\ldots ", "⋯": r"\cdots ", "⟨": r"\langle ", "⟩": r"\rangle ", "⌊": r"\lfloor ",
    "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "，": ",", "。": ".", "∫": r"\int ", "∑": r"\sum ",
    "\u200b": "", "\ufeff": "", "\u2061": "", "\u2062": "",
})  # fmt: skip
CIRCLED = {ord("①") + i: rf"\text{{({i + 1})}}" for i in range(20)}  # numbers of statements, which NFKC unmarks
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ⁽⁾", "0123456789+-n()")
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n")

FUNCTIONS = (
    "arcsinh arccosh arctanh arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sin cos tan cot sec csc log "
    "ln lg exp gcd lcm max min det lim"
).split()
LAYOUT = re.compile(
    r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|left|right|middle|[bB]igg?[lrm]?|mleft|mright|hfill|hline"
    r"|normalsize|large|Large|LARGE|huge|small|centering|boldmath)(?![A-Za-z])\.?"
)
SPACES = re.compile(
    r"\\(?:quad|qquad|enspace|thinspace|medspace|space)(?![A-Za-z])|(?<!\\)\\[,;:>! ]|~|\\hspace\*?\{[^{}]*\}"
)
FONT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|sc|normal)|math(?:rm|bf|it|sf|tt|normal)|operatorname\*?|mbox|hbox|boldsymbol|bm|emph|underline"
    r"|textnormal|text)\s*\{([^{}]*)\}"
)
OLD_FONT = re.compile(r"\\(?:rm|bf|it|sf|tt|cal)(?![A-Za-z])\s*")
THOUSANDS_LATEX = re.compile(r"(?<=\d)(?:\{,\}|\\text\{,\}|\\,|\\!\s*,?\s*(?:\\!)?|,\\!)\s*(?=\d{3}(?!\d))")
THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)")
THOUSANDS_SWISS = re.compile(r"(?<![\w'.,])[1-9]\d{0,2}(?:'\d{3})+(?![\w'])")
THOUSANDS_SPACED = re.compile(r"(?<![\d.,] )(?<![\d.,])[1-9]\d{0,2}(?: \d{3})+(?![\d,])(?! \d)")
SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SCALES |= {"quadrillion": 10**15, "quintillion": 10**18}
SCALED = re.compile(
    rf"(?<![\d}}.,])(\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}})(\.\d{{1,9}})?\s*(?:\\text\s*\{{\s*({'|'.join(SCALES)})s?\b([^{{}}]*)\}}"
    rf"|({'|'.join(SCALES)})s?(?![A-Za-z]))",
    re.IGNORECASE,
)
# latex2sympy reads `\ln 3/\ln 2` as the logarithm of 3/\ln 2.
QUOTIENT = re.compile(
    r"(\\(?:ln|log(?:\s*_\s*(?:\{[^{}]*\}|\w))?|sin|cos|tan))\s*(?:\{(\w+)\}|(?<=[a-z}\d\s])(\w+))\s*/\s*\\(?=ln|log|sin|cos|tan)"
)
DERIVATIVE = re.compile(
    r"\\frac\s*\{\s*d\s*(?:\^\s*\{?\s*([2-4])\s*\}?)?\s*([a-z])\s*\}\s*\{\s*d\s*[xt]\s*(?:\^\s*\{?\s*\1\s*\}?)?\s*\}"
)
# The number of degrees that a function is taken of, and a number or a product before a root
TRIGONOMETRIC = r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])(?:\s?\^\s?(?:\d|\{\s?-?\d\s?\}))?"
DEGREES = re.compile(rf"({TRIGONOMETRIC}\s?)(\(?)\s?(\d+(?:\.\d+)?)\s?\^\\circ(?![A-Za-z])\s?(\)?)")
DEGREES_BEFORE_ANGLE = re.compile(r"(?<![\d.])(\d+)\s?\^\\circ\s?(?=[-+]\s?\\arc)")
BARE_ARGUMENT = re.compile(
    r"(\\(?:(?:arc)?(?:sin|cos|tan)|ln|log))\s*(\d+\s*\\sqrt\s*(?:\[\d+\])?\s*\{[^{}]*\})(?!\s*[\^(])"
)
# 42nd, 42^{nd}, 42^{\text{nd}}; of `42\text{nd term}`, which has more in its braces, `42\text{ term}` is left
ND = r"(?:st|nd|rd|th)\b"
TEXT_ND = rf"\\text\s*\{{\s*{ND}\s*\}}"
ORDINAL = re.compile(
    rf"(?<=\d)\s*\^?\s*(?:{ND}|\{{\s*{ND}\s*\}}|{TEXT_ND}|\{{\s*{TEXT_ND}\s*\}}|(\\text\s*\{{)\s*{ND})"
)
BRACKET_COMMAND = re.compile(r"\\(begin|lbrace|langle|lfloor|lceil|end|rbrace|rangle|rfloor|rceil)(?![A-Za-z])")
SIMPLE_NUMBER = r"\d+(?:\.\d+)?"
SEMICOLONS = re.compile(r"[(\[][^()\[\],;]*;[^()\[\],]*[)\]]")  # (0;1], but not (0,5;1)


def normalize(text: str) -> str:
    """The normal spelling of an answer or a gold. Idempotent."""
    if text.isascii() and text.isdigit():
        return text
    # otherwise several `\s*` in a row, below, would try every split of a long run of spaces
    text = re.sub(r"\s+", " ", _from_unicode(text))
    text = re.sub(r"\\{1,2}(?:boxed|fbox)\s*(?=\{)", "", text)
    text = re.sub(r"\\\\\s*\[\s*-?[\d.]+\s*[a-z]{2}\s*\]", r"\\\\ ", text)  # the line skip of a matrix
    text = re.sub(r"\\mathbb\s+([A-Z])", r"\\mathbb{\1}", text)
    text = re.sub(r"(\\in\s?|^\s?)\\mathbf\s?\{([NZQRC])\}(?=\s?[\^_),}]|\s?$)", r"\1\\mathbb{\2}", text)
    text = re.sub(r"\\in\s([NZQRC])(?![A-Za-z])", r"\\in\\mathbb{\1}", text)
    text = re.sub(r"\\mathbb\s?\{R\}\s?(?:\^\s?(?:\+|\{\s?\+\s?\})|_\s?\{\s?>\s?0\s?\})", r"(0,\\infty)", text)
    text = re.sub(r"\{\s?([^{}\\]+)\\choose(?![A-Za-z])([^{}]+)\}", r"\\binom{\1}{\2}", text)
    text = re.sub(r"(?<=\d)\s?[xX]\s?(?=10\s?\^)", r"\\times ", text)
    text = THOUSANDS_SWISS.sub(lambda m: m[0].replace("'", ""), text)
    text = THOUSANDS_LATEX.sub("", text)
    text = re.sub(r"\\{2}(?=[A-Za-z$%])(?!\\)", r"\\", text) if "\\begin" not in text else text
    text = re.sub(r"\\\$|(?<![\w}$\\)])\$(?=\s?[\d.][\d,.]*(?:\s|$)[^$]*$)", r"\\usd ", text)
    text = re.sub(r"(?<=[\w)}\]])\*\*(?=[\w({\\-])", "^", text)
    text = re.sub(r"(?:\$|\\[()\[\]]|\*\*|`|\s)+", " ", text).replace("{:}", ":")
    text = re.sub(r"\\(?:checkmark|blacksquare|qed)(?![A-Za-z])|[✅✓✔☑■∎🎉]\ufe0f?", " ", text)
    if re.search(r"\\begin\s*\{(?:aligned|align\*?|gathered|split|equation\*?)\}", text):
        text = re.sub(r"\\(?:begin|end)\s*\{(?:aligned|align\*?|gathered|split|equation\*?)\}", " ", text)
        text = text if "\\begin" in text else text.replace("&", " ")
    if "\\begin" not in text:  # the next equation
        text = re.sub(r"(?:\\{2}|\\q?quad(?![A-Za-z]))\s*(?=[A-Za-z](?:_\{?\w\}?)?\s{0,3}=)", ", ", text)
    text = LAYOUT.sub(" ", text)
    text = re.sub(r"\s+", " ", SPACES.sub(" ", text))
    text = text.replace("\\{", "\\lbrace ").replace("\\}", "\\rbrace ")
    text = re.sub(r"\\([lr])brack(?![A-Za-z])", lambda m: {"l": "[", "r": "]"}[m[1]], text)
    text = re.sub(r"\\lg(?![A-Za-z])", r"\\log", text)
    text = re.sub(r"\\[lr]vert(?![A-Za-z])|\\vert(?![A-Za-z])|\\mid(?![A-Za-z])", "|", text)
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"\\[dt]binom(?![A-Za-z])", r"\\binom", text)
    text = re.sub(r"\\(le|ge|ne)q?q?(?:slant)?(?![A-Za-z])", lambda m: "\\" + {"ne": "neq"}.get(m[1], m[1]), text)
    text = re.sub(r"\\not\s*=", r"\\neq", text)
    text = re.sub(r"\\(?:varnothing|empty)(?![A-Za-z])", r"\\emptyset", text)
    text = re.sub(r"\\(?:simeq|doteq|thickapprox)(?![A-Za-z])|(?<!\\)~=|\\cong(?![A-Za-z])", r"\\approx", text)
    text = re.sub(r"(?<![<>!:])<=(?!>)", r"\\le ", text)
    text = re.sub(r">=", r"\\ge ", text)
    text = re.sub(r"!=(?!=)", r"\\neq ", text) if not re.search(r"\d\s*!\s*=", text) else text
    text = re.sub(
        r"\^\s*(?:\{\s*\\(?:circ|degree)\s*\}|\\(?:circ|degree)(?![A-Za-z]))|\\degree(?![A-Za-z])", r"^\\circ ", text
    )
    text = re.sub(r"\\dots(?:[cbmio])?(?![A-Za-z])", r"\\ldots ", text)
    text = re.sub(r"\\%", "%", text)
    text = OLD_FONT.sub("", text)
    text = re.sub(r"\\overrightarrow(?![A-Za-z])", r"\\vec", text)
    text = re.sub(r"\\(vec|hat|bar|d?dot|tilde)(?:\s+([A-Za-z])|\s*(\\[a-z]+))(?![A-Za-z])", r"\\\1{\2\3}", text)
    text = re.sub(r"\\mathcal\s*(?:\{\s*([A-Z])\s*\}|([A-Z]))", r"\1\2", text)
    for _ in range(3 if "\\mathrm" in text else 0):  # the braces of \\mathrm{m/s^{2}}
        text = re.sub(r"(\\(?:mathrm|text|operatorname)\s*\{[^{}]*\^\s*)\{\s*(-?\d)\s*\}", r"\1\2", text)
    for _ in range(3):  # fonts nest: \textbf{\text{(B)}}
        text = FONT.sub(_font, text)
    text = re.sub(r"(?<=[\d}])\s*\\text\s*\{\s*to\s*\}\s*(?=[\d\\])", ":", text)  # the ratio 1 to 2
    text = ORDINAL.sub(r"\1", text)
    text = _plain_functions(text)
    text = re.sub(
        r"\\text\s*\{\s*\(?\s*mod(?:ulo)?\s*(\w*)\s*\)?\s*\}|(?<![\\A-Za-z])mod(?![A-Za-z])", r"\\mod \1 ", text
    )
    text = DERIVATIVE.sub(lambda m: m[2] + "'" * int(m[1] or 1), text)
    text = re.sub(r"\^\s*\{\s*((?:\\prime\s*)+)\}", lambda m: "'" * m[1].count("p"), text)
    text = re.sub(r"(?<=\d)[eE]\+?(-?\d+)(?![\d.A-Za-z])", r"\\times 10^{\1}", text)
    text = re.sub(r"\\log\s*_\s*\{?\s*e\s*\}?", r"\\ln ", text)
    text = SCALED.sub(_scaled, text)
    text = QUOTIENT.sub(lambda m: rf"{m[1]}({m[2] or m[3]})/" + "\\", text)
    text = _plain_roots(text)
    text = _short_arguments(text)
    text = DEGREES.sub(
        lambda m: m[0] if m[2] and not m[4] else f"{m[1]}({_in_radians(m[3])}){'' if m[2] else m[4]}", text
    )
    text = DEGREES_BEFORE_ANGLE.sub(lambda m: _in_radians(m[1]), text)
    text = BARE_ARGUMENT.sub(r"\1(\2)", text)
    text = re.sub(r"(?<=\d)\s+(\d+)\s*/\s*(\d+)(?!\d)", r"\\frac{\1}{\2}", text)  # the mixed number "2 1/2"
    text = re.sub(
        r"(?<![\w}.^])(\d+)/(\d+)(?=\s\s?(?:\\(?:pi|sqrt)(?![A-Za-z])|[a-z](?![A-Za-z])))", r"\\frac{\1}{\2}", text
    )
    text = re.sub(r"\s+", " ", text).strip()
    text = SEMICOLONS.sub(lambda m: m[0].replace(";", ","), text)
    text = re.sub(r"^[\s,;:=]+", "", text)
    text = text if text.endswith("...") else text.rstrip(" .,;:")
    while _is_wrapped(text, "{", "}"):
        text = text[1:-1].strip()
    bare = text.lstrip("-+ ").removeprefix("\\usd ")
    if THOUSANDS.match(bare) or not re.search(r"[(\[{]|\\lbrace|, ", text):
        text = THOUSANDS.sub(lambda m: m[0].replace(",", ""), text)
    if not re.search(r"[,;]", text):
        text = THOUSANDS_SPACED.sub(lambda m: m[0].replace(" ", ""), text)
    return text


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


def matched(wanted: Sequence, given: Sequence, same: Callable[..., bool]) -> bool:
    """Whether both have the same elements, in any order."""
    left = list(given) if len(given) == len(wanted) else []
    for one in wanted:
        found = next((other for other in left if same(one, other)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _is_wrapped(text: str, left: str, right: str) -> bool:
    return text.startswith(left) and text.endswith(right) and closing(text, 0) == len(text) - 1


def _from_unicode(text: str) -> str:
    if text.isascii():
        return text
    text = re.sub(r"[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒]", _fraction, text)
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ⁽⁾]+", lambda m: "^{" + m[0].translate(SUPERSCRIPTS) + "}", text)
    text = re.sub(r"[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]+", lambda m: "_{" + m[0].translate(SUBSCRIPTS) + "}", text)
    text = text.translate(SYMBOLS).translate(CIRCLED)
    text = re.sub(r"[√∛∜]", lambda m: {"√": "\\sqrt ", "∛": "\\sqrt[3]", "∜": "\\sqrt[4]"}[m[0]], text)
    return unicodedata.normalize("NFKC", text)


def _fraction(match: re.Match) -> str:
    value = Fraction(unicodedata.numeric(match[0])).limit_denominator(10)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _scaled(match: re.Match) -> str:
    """`5 \\text{ million dollars}` as a number and the rest."""
    number = Fraction(match[1].replace(",", "") + (match[2] or "")) * SCALES[(match[3] or match[5]).lower()]
    if number.denominator > 1:  # 0.1234 thousand
        return match[0]
    return str(number) + (rf" \text{{{match[4]}}}" if (match[4] or "").strip() else "")


def _font(match: re.Match) -> str:
    command, content = match[0], match[1]
    word = content.strip()
    if word in FUNCTIONS and ("text" not in command[:6] or word in ("gcd", "lcm")):
        return f"\\{word} "
    if not word or (len(word) == 1 and command.startswith(("\\mathbf", "\\boldsymbol", "\\bm", "\\mathit"))):
        return f" {word} "
    if re.fullmatch(r"[-+\d.,/()^ ]+", word):  # a number needs no font
        return f" {word} "
    if len(word) == 1 and command.startswith("\\mathrm") and word in "eidx":
        return word
    return f"\\text{{{content}}}"


def _in_radians(degrees: str) -> str:
    angle = Fraction(degrees) / 180
    return rf"\frac{{{angle.numerator}\pi}}{{{angle.denominator}}}" if angle.denominator > 1 else rf"{angle}\pi "


def _plain_functions(text: str) -> str:
    """`sin(x)`, `pi` and `infinity` typed without their backslashes."""
    text = re.sub(r"(?<![\\A-Za-z])(arc(?:sin|cos|tan)|sinh|cosh|tanh|sin|cos|tan|log|ln)(?=\s*[\d(\\^_]|\s+[a-z]\b)",
                  r"\\\1 ", text)  # fmt: skip
    text = re.sub(r"\\text\s*\{\s*(?:negative|minus)\s+infinity\s*\}|\bnegative infinity\b", r"-\\infty ", text)
    text = re.sub(r"\\text\s*\{\s*infinity\s*\}", r"\\infty ", text, flags=re.IGNORECASE)
    text = re.sub(r"\\(max|min|gcd|lcm)\s*\\lbrace([^{}\\]*)\\rbrace", r"\\\1(\2)", text)
    text = re.sub(r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi ", text)
    return re.sub(r"(?<![\\A-Za-z{])(?:infinity|infty|inf|oo)(?![A-Za-z])", r"\\infty ", text)


def _plain_roots(text: str) -> str:
    r"""`sqrt(3)`, `\sqrt 3` and `\sqrt(3)` as `\sqrt{3}`."""
    text = re.sub(r"(?<![\\A-Za-z])sqrt(?![A-Za-z])", r"\\sqrt", text)
    text = re.sub(r"\\cbrt(?![A-Za-z])|(?<![\\A-Za-z])cbrt(?![A-Za-z])", r"\\sqrt[3]", text)
    position = 0
    while (position := text.find("\\sqrt", position)) >= 0:
        position += 5
        rest = text[position:].lstrip()
        if rest.startswith("["):
            position = text.find("]", position) + 1
            rest = text[position:].lstrip() if position else ""
        if rest.startswith("("):
            opening = len(text) - len(rest)
            end = closing(text, opening)
            if end > 0:
                text = f"{text[:opening]}{{{text[opening + 1 : end]}}}{text[end + 1 :]}"
        elif number := re.match(rf"{SIMPLE_NUMBER}|[A-Za-z]|\\[a-z]+", rest):
            start = len(text) - len(rest)
            # After `\sqrt` LaTeX takes one digit, but people who leave the braces out mean the number.
            text = f"{text[:start]}{{{number[0]}}}{rest[number.end() :]}"
        if position <= 0:
            break
    return text


def _short_arguments(text: str) -> str:
    r"""`\frac12`, `x^12`, `x^(n+1)` with their braces."""
    text = re.sub(r"\\(frac|binom)\s*(\d)\s*(\d)|\\(binom)\s+([a-z])\s*(\w)", r"\\\1\4{\2\5}{\3\6}", text)
    text = re.sub(r"\\frac\s*(\d)\s*(?=\{)", r"\\frac{\1}", text)
    text = re.sub(r"\\frac\s*(\\(?:pi|theta|alpha|beta))(?![A-Za-z])\s*(?=[\d{])", r"\\frac{\1}", text)
    text = re.sub(r"\\frac\s+([A-Za-z])\s*(?=[A-Za-z\d{])", r"\\frac{\1}", text)
    text = re.sub(r"(\\frac\s*\{[^{}]*\})\s*([A-Za-z\d])", r"\1{\2}", text)
    text = re.sub(r"\^\s*(-?\d{2,}|-\d)", r"^{\1}", text)
    position = 0
    while match := re.compile(r"\^\s*\(").search(text, position):
        end = closing(text, match.end() - 1)
        if end < 0:
            break
        text = f"{text[: match.start()]}^{{{text[match.end() : end]}}}{text[end + 1 :]}"
        position = match.start() + 1
    return text
