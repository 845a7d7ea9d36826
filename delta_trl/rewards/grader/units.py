r"""Quantities: values with a known unit, `5\text{ cm}`, `\$3.50`, `60\text{ km/h}`, `50\%`, `90^\circ`.

A unit is a factor and the power of each dimension, so that 2 hours equal 120 minutes, and metres do not equal square
metres. Percent and degrees have no dimension: 50 % is 50 and 1/2. A missing unit is forgiven, another one is not. Of a
gold, any words after its value are a unit (`7\text{ apples}`); an answer may repeat or omit them.
"""

import re
from dataclasses import dataclass, field

import sympy

from .expressions import equal_expressions, equal_parsed, number
from .forms import refuse_unfinished, refuse_work
from .normalization import squeeze
from .numerals import exact, is_rounded
from .parsing import UnreadableError
from .words import is_wordy, plain_words


def _table() -> dict[str, tuple[sympy.Expr, str]]:
    prefixes = {"": 1, "k": 10**3, "c": "1/100", "m": "1/1000", "M": 10**6, "G": 10**9, "n": "1/1000000000"}
    prefixes |= {"d": "1/10", "µ": "1/1000000", "μ": "1/1000000"}
    names = {"": "", "k": "kilo", "c": "centi", "m": "milli", "M": "mega", "d": "deci", "n": "nano", "µ": "micro"}
    prefixed = {  # symbol: full names; dimension
        "m": ("metre meter", "length"), "g": ("gram", "mass"), "L": ("litre liter", "volume"), "l": ("", "volume"),
        "s": ("second", "time"), "J": ("joule", "energy"), "N": ("newton", "force"), "W": ("watt", "power"),
        "V": ("volt", "voltage"), "A": ("ampere amp", "current"), "Hz": ("hertz", "frequency"),
        "Pa": ("pascal", "pressure"), "eV": ("electronvolt", "electronvolt"), "mol": ("mole", "amount"),
        "cal": ("calorie", "calorie"),
    }  # fmt: skip
    others = {
        "length": "inch 127/5000 inches 127/5000 in 127/5000 foot 381/1250 feet 381/1250 ft 381/1250 yard 1143/1250 "
                  "yd 1143/1250 mile 201168/125 mi 201168/125",
        "mass": "kilo 1000 ton 1000000 tonne 1000000 pound 45359237/100000 lb 45359237/100000 ounce 45359237/1600000 "
                "oz 45359237/1600000",
        "time": "sec 1 minute 60 min 60 hour 3600 hr 3600 h 3600 day 86400 week 604800",
        "year": "year 1 yr 1 month 1/12 decade 10 century 100 centuries 100",
        "gallon": "gallon 1 gal 1", "dollar": "dollar 1 usd 1 cent 1/100 ¢ 1/100", "euro": "euro 1 € 1",
        "pound sterling": "£ 1", "unit": "unit 1", "celsius": "celsius 1 °C 1", "fahrenheit": "fahrenheit 1 °F 1",
        "kelvin": "kelvin 1 K 1", "resistance": "ohm 1 Ω 1", "charge": "coulomb 1",
        "": "percent 1/100 % 1/100 radian 1 rad 1",
    }  # fmt: skip
    table: dict[str, tuple[sympy.Expr, str]] = {}
    for symbol, (words, dimension) in prefixed.items():
        for prefix, factor in prefixes.items():
            for spelling in (prefix + symbol, *(names[prefix] + word for word in words.split() if prefix in names)):
                table[spelling] = (sympy.Rational(factor), dimension)
    for dimension, units in others.items():
        pairs = units.split()
        table |= {
            unit: (sympy.Rational(factor), dimension) for unit, factor in zip(pairs[::2], pairs[1::2], strict=True)
        }
    return table | dict.fromkeys(("degree", "deg", "°"), (sympy.pi / 180, ""))


UNITS = _table()
TEXT = r"\\text\s*\{(?:[^{}]|\{[^{}]*\})*\}"
UNIT = (
    rf"(?:{TEXT}|\^\\circ|[%°€¢]|/|\\cdot(?=\s*\\text)|(?<=\s)[A-Za-z](?![A-Za-z])|(?<![\\A-Za-z])[A-Za-zµμ]{{2,}}\.?)"
    r"(?:\s*\^\s*(?:\d|\{\s*-?\d\s*\}))?"
)
QUANTITY = re.compile(rf"(?P<value>.*?[\d}})\]!'a-z|])(?P<unit>\s*{UNIT}(?:\s*(?:\\cdot\s*)?{UNIT})*)\s*$", re.DOTALL)
FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")  # what follows is its angle, no unit
CURRENCY = re.compile(r"(-?\s*)(\\usd|[€£])\s*")
TOKEN = re.compile(
    r"\s*(?:(?P<word>°[CF]\b|[A-Za-zµμ]+|[€£¢°%])\.?(?:\s*\^\s*\{?\s*(?P<power>-?\d)\s*\}?)?|(?P<slash>/)"
    r"|\\cdot(?![A-Za-z])|[*·])"
)


@dataclass
class Unit:
    """A factor and the power of each dimension."""

    factor: sympy.Expr = sympy.S.One
    powers: dict[str, int] = field(default_factory=dict)


def equal_quantities(gold: str, answer: str) -> bool:
    """Compare two values with or without units."""
    if squeeze(gold) == squeeze(answer):
        return True
    (gold_value, gold_text), (value, text) = split_unit(gold), split_unit(answer)
    gold_unit, unit = parse_unit(gold_text), parse_unit(text)
    if gold_text and gold_unit is None and is_wordy(gold_text):  # the gold's noun, such as apples
        return equal_values(gold_value, value if text and plain_words(text) == plain_words(gold_text) else answer)
    gold_value, value = gold_value if gold_unit else gold, value if unit else answer
    if gold_unit is None and unit is None:
        return equal_values(gold, answer)
    if gold_unit and unit:
        if gold_unit.powers != unit.powers:
            return False
        if gold_unit.factor == unit.factor:
            return equal_values(gold_value, value)
        return _equal_scaled(gold_value, gold_unit.factor, value, unit.factor)
    known = gold_unit or unit
    assert known is not None
    if not known.powers and known.factor != 1:  # percent and degrees may be carried out
        factors = (known.factor, sympy.S.One) if gold_unit else (sympy.S.One, known.factor)
        if _equal_scaled(gold_value, factors[0], value, factors[1]):
            return True
        share = exact(gold_value)
        if unit and known.factor.is_Rational and share is not None and abs(share) < 1:
            return False  # the share 0.5 is not 0.5 %
    return equal_values(gold_value, value)


def equal_values(gold: str, answer: str) -> bool:
    """Compare two values without units; an answer has to be in a final form."""
    if not gold or not answer:
        return False
    if squeeze(gold) == squeeze(answer):
        return True
    refuse_unfinished(gold, answer)
    first, second = exact(gold), exact(answer)
    if first is not None and second is not None:
        return first == second or is_rounded(gold, second)
    return equal_expressions(gold, answer)


def split_unit(text: str) -> tuple[str, str]:
    """Value and unit of a quantity; the unit is empty if there is none."""
    if currency := CURRENCY.match(text):
        sign = "\\text{dollar}" if currency[2] == "\\usd" else currency[2]
        value, unit = split_unit(currency[1] + text[currency.end() :])
        # "$5 dollars" is one unit said twice
        return value, sign if re.fullmatch(r"\s*(?:\\text\s*\{)?\s*dollars?\s*\}?\s*", unit) else f"{sign} {unit}"
    text = re.sub(r"\s*\\usd\s*$", r"\\text{dollar}", text)
    match = QUANTITY.match(text)
    if not match or is_wordy(match["value"]) or FUNCTION.search(match["value"]):
        return text, ""
    return match["value"].strip(), match["unit"].strip()


def parse_unit(text: str) -> Unit | None:
    """The unit that a text spells; None if it is not a known one."""
    text = re.sub(TEXT, lambda match: f" {match[0][match[0].index('{') + 1 : -1]} ", text)
    text = re.sub(r"\^\\circ\s*([CF])?\b", lambda match: f" °{match[1] or ''} ", text)
    text = re.sub(r"\bmph\b", "miles per hour", text)
    text = re.sub(r"\bdegrees? (?=celsius|fahrenheit)", "", text, flags=re.IGNORECASE).strip()
    unit, found, sign, next_power, position = Unit(), None, 1, 1, 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if not match:
            return None
        position = match.end()
        word = match["word"] or ""
        if match["slash"] or word == "per":
            sign = -1
        elif word in ("square", "sq", "cubic", "cu"):
            next_power = 2 if word.startswith("sq") else 3
        elif word in ("squared", "cubed") and found:
            extra = sign * (1 if word == "squared" else 2)
            unit.factor *= found[0] ** extra
            unit.powers[found[1]] = unit.powers.get(found[1], 0) + extra
        elif word:
            found = _look_up(word)
            if found is None:
                return None
            power = sign * next_power * int(match["power"] or 1)
            unit.factor *= found[0] ** power
            unit.powers[found[1]] = unit.powers.get(found[1], 0) + power
            next_power = 1
    unit.powers = {dimension: power for dimension, power in unit.powers.items() if power and dimension}
    return unit if found else None


def _look_up(word: str) -> tuple[sympy.Expr, str] | None:
    lower = word.lower()
    for spelling in (word, lower, lower[:-1] if lower.endswith("s") and len(lower) > 2 else lower):
        if spelling in UNITS and (spelling == word or len(word) > 1):  # 5M is not 5 m
            return UNITS[spelling]
    return None


def _equal_scaled(gold: str, gold_factor: sympy.Expr, answer: str, factor: sympy.Expr) -> bool:
    """Compare after converting the units."""
    refuse_work(gold, answer)
    if exact(answer) is None and (exact(gold) is not None) != ("\\pi" in answer):  # 90 degrees are π/2
        return False
    try:
        return equal_parsed(number(gold) * gold_factor, number(answer) * factor)
    except UnreadableError:
        return False
