r"""Quantities: values with a known unit, `5\text{ cm}`, `\$3.50`, `60\text{ km/h}`, `50\%`, `90^\circ`.

A unit is a factor and the power of each dimension, so that 2 hours equal 120 minutes, and metres do not equal square
metres. Percent and degrees have no dimension: 50 % is 50 and 1/2.
"""

import collections
import re

import sympy

from .words import TEXT


Unit = tuple[sympy.Expr, dict[str, int]]
"""A factor and the power of each dimension."""

PREFIXES = """
k 1000  kilo 1000  c .01  centi .01  m .001  milli .001  d .1  deci .1
M 1e6  mega 1e6  G 1e9  n 1e-9  nano 1e-9  µ 1e-6  μ 1e-6  micro 1e-6
"""
# A dimension, the factor, names; a star if they take prefixes
TABLE = """
length 1 m metre meter *
mass 1 g gram *
volume 1 L l litre liter *
energy 1 J joule *
force 1 N newton *
power 1 W watt *
time 1 s second *
voltage 1 V volt *
current 1 A ampere *
frequency 1 Hz hertz *
pressure 1 Pa pascal *
electronvolt 1 eV electronvolt *
amount 1 mol mole *
calorie 1 cal calorie *
length .0254 inch inches in
length .3048 foot feet ft
length .9144 yard yd
length 1609.344 mile mi
mass 1000 kilo
mass 1e6 ton tonne
mass 453.59237 pound lb
mass 28.349523125 ounce oz
time 1 sec
time 60 minute min
time 3600 hour hr h
time 86400 day
time 604800 week
current 1 amp
year 1 month
year 12 year yr
year 120 decade
year 1200 century centuries
gallon 1 gallon gal
dollar 1 dollar usd
dollar .01 cent ¢
euro 1 euro €
sterling 1 £
yen 1 yen
unit 1 unit
celsius 1 celsius °C
fahrenheit 1 fahrenheit °F
kelvin 1 kelvin K
resistance 1 ohm Ω
charge 1 coulomb
none .01 percent %
none 1 radian rad
"""
UNITS = dict.fromkeys(("degree", "degrees", "deg", "°"), (sympy.pi / 180, "none"))
for row in TABLE.strip().splitlines():
    dimension, factor, *names = row.split()
    prefixes = re.findall(r"(\S+) (\S+)", PREFIXES) if "*" in names else []
    for prefix, size in [("", "1"), *prefixes]:
        unit = (sympy.Rational(factor) * sympy.Rational(size), dimension)
        for name in names:
            UNITS[prefix + name] = unit
            UNITS[f"{prefix}{name}s"] = unit
UNIT = (
    rf"(?:{TEXT}|\^\\circ|\\usd|[%°€£¢Ω]|/|\\cdot(?=\s*\\text)|(?<=[\s/])[A-Za-z](?![A-Za-z])"
    r"|(?<![\\A-Za-z])[A-Za-zµμ]{2,}\.?)(?:\s*\^\s*(?:\d|\{\s*-?\d\s*\}))?"
)
QUANTITY = re.compile(
    rf"(?P<value>.*?[\d}})\]!'a-z|])(?P<unit>\s*(?!/){UNIT}(?:\s*(?:\\cdot\s*)?{UNIT})*)\s*$", re.DOTALL
)
FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")  # what follows is its angle, no unit
CURRENCY = re.compile(r"^(-?\s*)(\\usd|[€£])\s*(.+)", re.DOTALL)
SPELLED = (
    (r"\\text\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r" \1 "),
    (r"\^\\circ\s*([CF])?\b", r" °\1 "),
    (r"\\usd", "usd"),
    (r"\bmph\b", "miles/hour"),
    (r"\bper\b", "/"),
    (r"(?i)\bdegrees? (?=celsius|fahrenheit)", ""),
    (r"\b(?:square|sq)\.? (\w+)|(\w+) squared\b", r"\1\2^2"),
    (r"\b(?:cubic|cu)\.? (\w+)|(\w+) cubed\b", r"\1\2^3"),
)
TOKEN = re.compile(
    r"\s*(?:(?P<word>°[CF]\b|[A-Za-zµμ]+|[€£¢°%Ω])\.?(?:\s*\^\s*\{?\s*(?P<power>-?\d)\s*\}?)?|(?P<slash>/)"
    r"|\\cdot(?![A-Za-z])|[*·])"
)


def split_unit(text: str) -> tuple[str, str]:
    """Value and unit of a quantity; the unit is empty if there is none."""
    text = CURRENCY.sub(r"\1\3 \2", text)
    match = QUANTITY.match(text)
    if not match or FUNCTION.search(match["value"]):
        return text, ""
    return match["value"], match["unit"]


def parse_unit(text: str) -> Unit | None:
    """The unit that a text spells; None if it is not a known one."""
    for pattern, replacement in SPELLED:
        text = re.sub(pattern, replacement, text)
    if TOKEN.sub("", text).strip():
        return None
    factor = sympy.S.One
    powers = collections.Counter[str]()
    sign = 1
    for match in TOKEN.finditer(text):
        if match["slash"]:
            sign = -1
        if word := match["word"]:
            known = UNITS.get(word) or UNITS.get(word.lower() if len(word) > 1 else "")  # 5M is not 5 m
            if known is None:
                return None
            power = sign * int(match["power"] or 1)
            factor *= known[0] ** power
            powers[known[1]] += power
    if not powers:
        return None
    return factor, {dimension: power for dimension, power in powers.items() if power and dimension != "none"}
