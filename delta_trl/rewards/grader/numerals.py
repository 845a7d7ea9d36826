r"""Numerals: integers, decimals, fractions, mixed numbers, powers of ten. Their values are exact fractions."""

import re
from fractions import Fraction


MAX_EXPONENT = 400
NUMBER = re.compile(r"([-+]?)\s*(\d+(?:\.\d*)?|\.\d+)")
RATIO = re.compile(
    r"([-+]?)\s*(?:\\frac\s*\{\s*([-+]?\s*\d+(?:\.\d+)?)\s*\}\s*\{\s*([-+]?\s*\d+(?:\.\d+)?)\s*\}"
    r"|(\d+(?:\.\d+)?)\s*[/:]\s*([-+]?\d+(?:\.\d+)?))"
)
IN_BRACKETS = re.compile(r"(-?)\s*\(([^()]*)\)")
MIXED = re.compile(r"([-+]?)\s*(\d+)\s*\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}")
POWER_OF_TEN = re.compile(
    r"([-+]?)\s*(?:(\d+(?:\.\d*)?|\.\d+)\s*(?:\\times|\\cdot|\*)\s*)?10\s*\^\s*(?:\{\s*([-+]?\d{1,3})\s*\}|(\d))"
)
REPEATING = re.compile(r"([-+]?)\s*(\d*)\.(\d*)(?:\\(?:overline|bar|dot)\s*\{?(\d+)\}?|\((\d+)\))")
ELLIPSIS = re.compile(r"([-+]?)\s*(\d*)\.(\d*?)(\d{1,6}?)\4{2,}\s*\\[lc]?dots")


def exact(text: str) -> Fraction | int | None:
    r"""The value of a numeral; None for any other text, such as `48 \div 2`, `2^{10}` or `\sqrt{4}`."""
    text = text.strip()
    if match := IN_BRACKETS.fullmatch(text):
        return None if (inner := exact(match[2])) is None else -inner if match[1] else inner
    if match := NUMBER.fullmatch(text):
        value: Fraction | int = Fraction(f"0{match[2].rstrip('.')}") if "." in match[2] else int(match[2])
    elif match := RATIO.fullmatch(text):
        above, below = (Fraction((match[i] or match[j]).replace(" ", "")) for i, j in ((2, 4), (3, 5)))
        if below == 0:
            return None
        value = above / below
    elif match := MIXED.fullmatch(text):
        if int(match[3]) >= int(match[4]):
            return None
        value = int(match[2]) + Fraction(int(match[3]), int(match[4]))
    elif match := POWER_OF_TEN.fullmatch(text):
        if abs(exponent := int(match[3] or match[4])) > MAX_EXPONENT:
            return None
        value = Fraction((match[2] or "1").rstrip(".")) * Fraction(10) ** exponent
    elif match := REPEATING.fullmatch(text) or ELLIPSIS.fullmatch(text):
        whole, fixed, period = match[2] or "0", match[3], next(filter(None, match.groups()[3:]))
        value = Fraction(int(whole + fixed), 10 ** len(fixed))
        value += Fraction(int(period), 10 ** len(fixed) * (10 ** len(period) - 1))
    else:
        return None
    return -value if match[1] == "-" else value


def is_fraction(text: str) -> bool:
    r"""Whether a numeral is written as a fraction, `48/2` or `\frac{3}{4}`, or as a mixed number."""
    return bool(RATIO.fullmatch(text.strip()) or MIXED.fullmatch(text.strip()))
