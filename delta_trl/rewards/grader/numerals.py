r"""Numerals: integers, decimals, fractions, mixed numbers, powers of ten. Their values are exact."""

import re
from fractions import Fraction


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
        return Fraction(text)
    if match := RATIO.fullmatch(FRACTION.sub(r" \1/\2", text)):
        whole, above, below = match.groups()
        divisor = _signed(below)
        return int(whole or 0) + _signed(above) / divisor if divisor else None
    if match := POWER_OF_TEN.fullmatch(text):
        return Fraction(f"{match[1] or 1}e{match[2]}")
    if match := REPEATING.fullmatch(text) or ELLIPSIS.fullmatch(text):
        whole, fixed, *periods = match.groups()
        period = periods[1] or periods[0]
        size = 10 ** len(fixed)
        return Fraction(int(f"0{whole}{fixed}"), size) + Fraction(int(period), size * (10 ** len(period) - 1))
    return None


def _signed(decimal: str) -> Fraction:
    return Fraction(decimal.replace(" ", ""))
