r"""Numerals: integers, decimals, fractions, mixed numbers, powers of ten. Their values are exact."""

import re
from fractions import Fraction


MAX_EXPONENT = 400
DECIMAL = r"(?:\d+(?:\.\d*)?|\.\d+)"
SIGNED = re.compile(r"\s*([-+]?)\s*(?:\(([^()]*)\)|([\d.\\].*?))\s*", re.DOTALL)
FRACTION = re.compile(rf"\\frac\s*\{{\s*([-+]?\s*{DECIMAL})\s*\}}\s*\{{\s*([-+]?\s*{DECIMAL})\s*\}}")
RATIO = re.compile(
    rf"\s*(?:(\d+)\s+)?([-+]?\s*{DECIMAL})\s*[/:]\s*([-+]?\s*{DECIMAL})\s*"
)  # after a whole number or not
POWER_OF_TEN = re.compile(
    rf"(?:({DECIMAL})\s*(?:\\times|\\cdot|\*)\s*)?10\s*\^\s*\{{?\s*((?<=\{{)[-+]?\d{{1,3}}|\d)\s*\}}?"
)
REPEATING = re.compile(r"(\d*)\.(\d*)(?:\\(?:overline|bar|dot)\s*\{?(\d+)\}?|\((\d+)\))")
ELLIPSIS = re.compile(r"(\d*)\.(\d*?)((\d{1,6}?)\4{2,})\s*\\[lc]?dots")


def exact(text: str) -> Fraction | None:
    r"""The value of a numeral; None for any other text, such as `48 \div 2`, `2^{10}` or `\sqrt{4}`."""
    match = SIGNED.fullmatch(text)
    if match is None:
        return None
    value = _unsigned(match[3]) if match[2] is None else exact(match[2])
    return -value if value is not None and match[1] == "-" else value


def _unsigned(text: str) -> Fraction | None:
    if re.fullmatch(DECIMAL, text):
        return _decimal(text)
    if match := RATIO.fullmatch(FRACTION.sub(r" \1/\2", text)):
        above, below = map(_decimal, match.groups()[1:])
        if not below:
            return None
        return int(match[1] or 0) + above / below
    if (match := POWER_OF_TEN.fullmatch(text)) and abs(exponent := int(match[2])) <= MAX_EXPONENT:
        return _decimal(match[1] or "1") * Fraction(10) ** exponent
    if match := REPEATING.fullmatch(text) or ELLIPSIS.fullmatch(text):
        period = match[4] or match[3]
        fixed = _decimal(f"0{match[1]}.{match[2]}0")
        return fixed + Fraction(int(period), 10 ** len(match[2]) * (10 ** len(period) - 1))
    return None


def _decimal(text: str) -> Fraction:
    """The value of digits with a sign or a point, which Python wants between digits."""
    return Fraction(text.replace(" ", "").removesuffix("."))
