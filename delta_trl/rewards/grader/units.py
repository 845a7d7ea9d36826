r"""Quantities: values with a known unit, `5\text{ cm}`, `\$3.50`, `60\text{ km/h}`, `50\%`, `90^\circ`.

A unit is the product of a factor and dimensions, so that 2 hours equal 120 minutes, and metres do not equal square
metres. Percent and degrees have no dimension: 50 % is 50 and 1/2.
"""

import re

import sympy

from .words import TEXT


PREFIXES = """
k 1000  kilo 1000  c .01  centi .01  m .001  milli .001  d .1  deci .1
M 1e6  mega 1e6  G 1e9  n 1e-9  nano 1e-9  µ 1e-6  μ 1e-6  micro 1e-6
"""
# A factor and a dimension, names; a star if they take prefixes
TABLE = """
length m metre meter *
mass g gram *
volume L l litre liter *
energy J joule *
force N newton *
power W watt *
time s second *
voltage V volt *
current A ampere *
frequency Hz hertz *
pressure Pa pascal *
electronvolt eV electronvolt *
amount mol mole *
calorie cal calorie *
.0254*length inch inches in
.3048*length foot feet ft
.9144*length yard yd
1609.344*length mile mi
1000*mass kilo
1e6*mass ton tonne
453.59237*mass pound lb
28.349523125*mass ounce oz
time sec
60*time minute min
3600*time hour hr h
86400*time day
604800*time week
current amp
year month
12*year year yr
120*year decade
1200*year century centuries
gallon gallon gal
dollar dollar usd
.01*dollar cent ¢
euro euro €
sterling £
yen yen
unit unit
celsius celsius °C
fahrenheit fahrenheit °F
kelvin kelvin K
resistance ohm Ω *
charge coulomb C *
magnetic tesla T *
capacitance farad F *
inductance henry H *
.01 percent %
1 radian rad
pi/180 degree deg °
"""
UNITS = {}
for row in TABLE.strip().splitlines():
    unit, *names = row.split()
    prefixes = re.findall(r"(\S+) (\S+)", PREFIXES) if "*" in names else []
    for prefix, size in [("", "1"), *prefixes]:
        prefixed = sympy.sympify(f"{size}*{unit}", rational=True)
        for name in names:
            UNITS[prefix + name] = prefixed
            UNITS[f"{prefix}{name}s"] = prefixed
UNIT = (
    rf"(?:{TEXT}|\^\\circ|\\usd|[%°€£¢Ω]|/|\\cdot(?=\s*\\text)|(?<=[\s/])[A-Za-z](?![A-Za-z])"
    r"|(?<![\\A-Za-z])[A-Za-zµμ]{2,}\.?)(?:\s*\^\s*(?:\d|\{\s*-?\d\s*\}))?"
)
QUANTITY = re.compile(
    rf"(?P<value>.*?[\d}})\]!'a-z|])(?P<unit>\s*(?!/){UNIT}(?:\s*(?:\\cdot\s*)?{UNIT})*)\s*$", re.DOTALL
)
SYMBOLS = ("C", "T", "F", "H")  # these may be other names, such as of a constant
# Where the unit of a numeral may begin, whatever its font
BEGINNING = re.compile(r"\\(?:text|frac|Omega|mu)(?![A-Za-z])|Ω|(?<![\\A-Za-z])[A-Za-z]")
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
PART = r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
SPELLED_IN_SYMBOLS = (
    (r"(?:\\text\s*\{\s*)?([kMGmn])(?:\s*\})?\s*(?=\\Omega)", r"\1"),
    (r"\\mu(?![A-Za-z])\s*(?:\\text\s*\{\s*(\w+)\s*\})?", r"µ\1"),
    (r"\\Omega(?![A-Za-z])", "Ω"),
    SPELLED[0],
    (rf"\\frac{PART}{PART}", r"\1/\2"),
)
TOKEN = re.compile(
    r"\s*(?:(?P<word>°[CF]\b|[A-Za-zµμ]*Ω|[A-Za-zµμ]+|[€£¢°%])\.?(?:\s*\^\s*\{?\s*(?P<power>-?\d)\s*\}?)?|(?P<slash>/)"
    r"|\\cdot(?![A-Za-z])|[*·])"
)


def split_unit(text: str) -> tuple[str, str]:
    """Value and unit of a quantity; the unit is empty if there is none."""
    text = CURRENCY.sub(r"\1\3 \2", text)
    match = QUANTITY.match(text)
    if not match or FUNCTION.search(match["value"]):
        return text, ""
    return match["value"], match["unit"]


def split_symbols(text: str) -> tuple[str, str]:
    """A numeral and what follows it, which is its unit if it is one in symbols."""
    beginning = BEGINNING.search(text)
    at = beginning.start() if beginning else len(text)
    return text[:at], text[at:]


def parse_unit(text: str, in_symbols: bool = False) -> tuple[sympy.Expr, sympy.Expr] | None:
    """
    Factor and dimension of the unit that a text spells; None if it is not a known one. What may also be the name of a
    number (`C`, `Ω`, `µ`) is one `in_symbols` only.
    """
    for pattern, replacement in (SPELLED_IN_SYMBOLS if in_symbols else ()) + SPELLED:
        text = re.sub(pattern, replacement, text)
    if TOKEN.sub("", text).strip():
        return None
    units = []
    sign = 1
    for match in TOKEN.finditer(text):
        if match["slash"]:
            sign = -1
        if word := match["word"]:
            unit = UNITS.get(word) or UNITS.get(word.lower() if len(word) > 1 else "")  # 5M is not 5 m
            if unit is None or (word in SYMBOLS and not in_symbols):
                return None
            units.append(unit ** (sign * int(match["power"] or 1)))
    if not units:
        return None
    return sympy.Mul(*units).as_independent(sympy.Symbol, as_Add=False)
