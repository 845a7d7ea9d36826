r"""Quantities: values with a known unit, `5\text{ cm}`, `\$3.50`, `60\text{ km/h}`, `50\%`, `90^\circ`.

A unit is a factor and the power of each dimension, so that 2 hours equal 120 minutes, and metres do not equal square
metres. Percent and degrees have no dimension: 50 % is 50 and 1/2. A missing unit is forgiven, another one is not. Of a
gold, any words after its value are a unit (`7\text{ apples}`); an answer may repeat or omit them.
"""

import collections
import re

import sympy

from .words import TEXT, is_wordy


Unit = tuple[sympy.Expr, dict[str, int]]
"""A factor and the power of each dimension."""

PREFIXES = {  # short and long
    "k": "1000", "c": ".01", "m": ".001", "d": ".1", "M": "1e6", "G": "1e9", "n": "1e-9", "µ": "1e-6", "μ": "1e-6",
    "kilo": "1000", "centi": ".01", "milli": ".001", "deci": ".1", "mega": "1e6", "nano": "1e-9", "micro": "1e-6",
}  # fmt: skip
UNITS_BY_DIMENSION = {  # those that take prefixes; others, each with its factor
    "length": ("m metre meter", "inch .0254 inches .0254 in .0254 foot .3048 feet .3048 ft .3048 yard .9144 yd .9144 "
                                "mile 1609.344 mi 1609.344"),
    "mass": ("g gram", "kilo 1000 ton 1e6 tonne 1e6 pound 453.59237 lb 453.59237 ounce 28.349523125 oz 28.349523125"),
    "volume": ("L l litre liter", ""), "energy": ("J joule", ""), "force": ("N newton", ""), "power": ("W watt", ""),
    "time": ("s second", "sec 1 minute 60 min 60 hour 3600 hr 3600 h 3600 day 86400 week 604800"),
    "voltage": ("V volt", ""), "current": ("A ampere", "amp 1"), "frequency": ("Hz hertz", ""),
    "pressure": ("Pa pascal", ""), "electronvolt": ("eV electronvolt", ""), "amount": ("mol mole", ""),
    "calorie": ("cal calorie", ""), "year": ("", "year 12 yr 12 month 1 decade 120 century 1200 centuries 1200"),
    "gallon": ("", "gallon 1 gal 1"), "dollar": ("", "dollar 1 usd 1 cent .01 ¢ .01"), "euro": ("", "euro 1 € 1"),
    "yen": ("", "yen 1"),
    "pound sterling": ("", "£ 1"), "unit": ("", "unit 1"), "celsius": ("", "celsius 1 °C 1"),
    "fahrenheit": ("", "fahrenheit 1 °F 1"), "kelvin": ("", "kelvin 1 K 1"), "resistance": ("", "ohm 1 Ω 1"),
    "charge": ("", "coulomb 1"), "": ("", "percent .01 % .01 radian 1 rad 1"),
}  # fmt: skip
UNITS: dict[str, tuple[sympy.Expr, str]] = dict.fromkeys(("degree", "deg", "°"), (sympy.pi / 180, ""))
for dimension, (names, others) in UNITS_BY_DIMENSION.items():
    for name in names.split():
        UNITS |= {prefix + name: (sympy.Rational(size), dimension) for prefix, size in ({"": "1"} | PREFIXES).items()}
    for name, size in zip(others.split()[::2], others.split()[1::2], strict=True):
        UNITS[name] = (sympy.Rational(size), dimension)
UNIT = (
    rf"(?:{TEXT}|\^\\circ|\\usd|[%°€£¢]|/|\\cdot(?=\s*\\text)|(?<=[\s/])[A-Za-z](?![A-Za-z])"
    r"|(?<![\\A-Za-z])[A-Za-zµμ]{2,}\.?)(?:\s*\^\s*(?:\d|\{\s*-?\d\s*\}))?"
)
QUANTITY = re.compile(
    rf"(?P<value>.*?[\d}})\]!'a-z|])(?P<unit>\s*(?!/){UNIT}(?:\s*(?:\\cdot\s*)?{UNIT})*)\s*$", re.DOTALL
)
FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")  # what follows is its angle, no unit
CURRENCY = re.compile(r"(-?\s*)(\\usd|[€£])\s*(.+)", re.DOTALL)
SPELLED = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\text\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r" \1 "),
        (r"\^\\circ\s*([CF])?\b", r" °\1 "),
        (r"\\usd", "usd"),
        (r"\bdollars? usd", "usd"),
        (r"\bmph\b", "miles/hour"),
        (r"\bper\b", "/"),
        (r"(?i)\bdegrees? (?=celsius|fahrenheit)", ""),
        (r"\b(?:square|sq)\.? (\w+)|(\w+) squared\b", r"\1\2^2"),
        (r"\b(?:cubic|cu)\.? (\w+)|(\w+) cubed\b", r"\1\2^3"),
    )
]
TOKEN = re.compile(
    r"\s*(?:(?P<word>°[CF]\b|[A-Za-zµμ]+|[€£¢°%])\.?(?:\s*\^\s*\{?\s*(?P<power>-?\d)\s*\}?)?|(?P<slash>/)"
    r"|\\cdot(?![A-Za-z])|[*·])"
)


def split_unit(text: str) -> tuple[str, str]:
    """Value and unit of a quantity; the unit is empty if there is none."""
    text = CURRENCY.sub(r"\1\3 \2", text) if CURRENCY.fullmatch(text) else text
    match = QUANTITY.match(text)
    if not match or is_wordy(match["value"]) or FUNCTION.search(match["value"]):
        return text, ""
    return match["value"].strip(), match["unit"].strip()


def parse_unit(text: str) -> Unit | None:
    """The unit that a text spells; None if it is not a known one."""
    for pattern, replacement in SPELLED:
        text = pattern.sub(replacement, re.sub(r"\s+", " ", text))
    factor, powers, sign, position = sympy.S.One, collections.Counter[str](), 1, 0
    text = text.strip()
    while position < len(text):
        match = TOKEN.match(text, position)
        if not match:
            return None
        position = match.end()
        if match["slash"]:
            sign = -1
        elif match["word"]:
            if (known := _look_up(match["word"])) is None:
                return None
            power = sign * int(match["power"] or 1)
            factor *= known[0] ** power
            powers[known[1]] += power
    return (factor, {name: power for name, power in powers.items() if power and name}) if powers else None


def _look_up(word: str) -> tuple[sympy.Expr, str] | None:
    lower = word.lower()
    for spelling in (word, lower, lower.removesuffix("s") if len(lower) > 2 else lower):
        if spelling in UNITS and (spelling == word or len(word) > 1):  # 5M is not 5 m
            return UNITS[spelling]
    return None
