"""Units of quantities: `5 cm`, `12 square feet`, `\\$3.50`, `60 miles per hour`, `7 apples`.

A unit is a factor and the power of each dimension. A noun that is in no table ("apples") is its own dimension. So 2
hours equal 120 minutes, and metres do not equal square metres. A word that hedges ("about") or changes the number
("dozen") is not a unit.
"""

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction

from .words import FRACTION_WORDS, NUMBER_WORDS


def _table() -> dict[str, tuple[Fraction | float, str]]:
    prefixes: dict[str, int | Fraction] = {}
    prefixes |= {"k": 10**3, "c": Fraction(1, 100), "m": Fraction(1, 1000), "d": Fraction(1, 10)}
    prefixes |= {"M": 10**6, "G": 10**9, "n": Fraction(1, 10**9), "µ": Fraction(1, 10**6), "μ": Fraction(1, 10**6)}
    words = {"k": "kilo", "c": "centi", "m": "milli", "d": "deci", "M": "mega", "G": "giga", "n": "nano", "µ": "micro"}
    table: dict[str, tuple[Fraction | float, str]] = {}
    prefixed = {  # symbols; full names; dimension
        "m": (("metre", "meter"), "length"),
        "g": (("gram", "gramme"), "mass"),
        "L": (("litre", "liter"), "volume"),
        "l": ((), "volume"),
        "J": (("joule",), "energy"),
        "N": (("newton",), "force"),
        "W": (("watt",), "power"),
        "V": (("volt",), "voltage"),
        "A": (("ampere", "amp"), "current"),
        "Hz": (("hertz",), "frequency"),
        "Pa": (("pascal",), "pressure"),
        "eV": (("electronvolt",), "electronvolt"),
        "mol": (("mole",), "amount"),
    }
    for symbol, (names, dimension) in prefixed.items():
        table[symbol] = (Fraction(1), dimension)
        table |= {name: (Fraction(1), dimension) for name in names}
        for prefix, factor in prefixes.items():
            table[prefix + symbol] = (Fraction(factor), dimension)
            if prefix in words:
                table |= {words[prefix] + name: (Fraction(factor), dimension) for name in names}
    others = {
        "length": {"inch": "127/5000", "inches": "127/5000", "in": "127/5000", "foot": "381/1250", "feet": "381/1250",
                   "ft": "381/1250", "yard": "1143/1250", "yd": "1143/1250", "mile": "201168/125", "mi": "201168/125"},
        "mass": {"kilo": "1000", "ton": "1000000", "tonne": "1000000", "pound": "45359237/100000",
                 "lb": "45359237/100000", "ounce": "45359237/1600000", "oz": "45359237/1600000"},
        "time": {"second": "1", "sec": "1", "s": "1", "minute": "60", "min": "60", "hour": "3600", "hr": "3600",
                 "h": "3600", "day": "86400", "week": "604800", "wk": "604800", "ms": "1/1000"},
        "year": {"year": "1", "yr": "1", "month": "1/12", "decade": "10", "century": "100", "centuries": "100"},
        "gallon": {"gallon": "1", "gal": "1"},
        "dollar": {"dollar": "1", "buck": "1", "usd": "1", "cent": "1/100", "¢": "1/100"},
        "euro": {"euro": "1", "eur": "1", "€": "1"},
        "rupee": {"rupee": "1", "rs": "1", "₹": "1"},
        "yen": {"yen": "1", "¥": "1"},
        "sterling": {"£": "1", "gbp": "1"},
        "unit": {"unit": "1"},
        "celsius": {"celsius": "1", "°C": "1"},
        "fahrenheit": {"fahrenheit": "1", "°F": "1"},
        "kelvin": {"kelvin": "1", "K": "1"},
        "resistance": {"ohm": "1", "Ω": "1"},
        "charge": {"coulomb": "1"},
    }  # fmt: skip
    for dimension, units in others.items():
        table |= {name: (Fraction(factor), dimension) for name, factor in units.items()}
    table |= dict.fromkeys(("degree", "deg", "°"), (math.pi / 180, "angle"))
    table |= dict.fromkeys(("radian", "rad"), (1.0, "angle"))
    return table


UNITS = _table()
SPEEDS = {"mph": "mile/hour", "kph": "km/hour", "kmph": "km/hour", "kmh": "km/hour", "mps": "m/s"}

# Words after a number that are not units: they hedge, deny, offer another answer, or change the number.
NOT_UNITS = frozenset(
    """about actually almost alternatively and answer approximately around at away base be but could depending dozen
    either else equal equals except factorial false guess half hundred if incorrect infinity instead is isn less likely
    maybe may might million billion trillion minus mod modulo more never neither no nor not nothing of or otherwise
    over pair perhaps pi plus possibly probably quarter root roughly score should sometimes squareroot sure than then
    thousand time times twice thrice unless unknown unsure wait was when where which wrong would
    bogus fake joke joking kidding lie lies nope untrue
    dozens hundreds thousands millions billions trillions lakh lakhs crore crores tens ones gross mil mln
    myriad myriads permille permil mille basis bps ppm ppb
    double doubled triple tripled quadruple quadrupled halved fold
    negative reciprocal inverse opposite fewer greater larger bigger smaller""".split()
) | (FRACTION_WORDS.keys() - {"quarters"})  # fmt: skip
# Scales ("zillion"), parts ("twelfths"), and what hedges or takes back ("ish", "upwards", "rejected", "etc")
NOT_A_UNIT = re.compile(
    r"\w*illions?|(?:eleven|twelf|\w+teen|\w+tie)ths?|\w*ish|\w+wards?|etc|(?:ex|in)clu(?:ded|sive)|rejected|minimum|maximum"
)
FILLERS = frozenset("the a an total all of each respectively".split())
TOKEN = re.compile(
    r"\s*(?:(?P<word>°\s?[CF]\b|[A-Za-zµμ]+|[€£¥₹¢°])\.?(?:\s*\^\s*\{?\s*(?P<power>-?\d)\s*\}?)?|(?P<slash>/)|(?P<dot>\\cdot\b|[*·]))"
)
COMPOUND_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\.?")
COMPOUND = re.compile(rf"{COMPOUND_PART.pattern}(?:\s*(?:,|and)?\s*{COMPOUND_PART.pattern}){{1,3}}")
TEXT = r"\\text\s*\{(?:[^{}]|\{[^{}]*\})*\}"
UNIT = (
    rf"(?:{TEXT}|\^\\circ|°|[€¢]|/|\\cdot(?=\s*\\text)|(?<![\\A-Za-z])[A-Za-zµμ]+\.?)"
    r"(?:\s*\^\s*(?:\d|\{\s*-?\d\s*\}))?"
)
QUANTITY = re.compile(rf"(?P<value>.*?[\d}})\]!'a-z|])(?P<unit>\s*{UNIT}(?:\s*(?:\\cdot\s*)?{UNIT})*)\s*$", re.DOTALL)


@dataclass
class Unit:
    """A factor and the power of each dimension. `nouns` are the dimensions that are in no table."""

    factor: Fraction | float = Fraction(1)
    powers: dict[str, int] = field(default_factory=dict)
    nouns: frozenset[str] = frozenset()

    def same_dimension(self, other: "Unit") -> bool:
        if self.nouns and other.nouns and (self.nouns <= other.nouns or other.nouns <= self.nouns):
            return True  # "3 roots" and "3 real roots"
        return self.powers == other.powers


def split_unit(text: str) -> tuple[str, str]:
    """Value and unit of a normalised quantity; the unit is empty if there is none."""
    if match := re.match(r"(-?\s*)(?:\\usd|(?P<sign>[€£¥₹]))\s*", text):
        value = match[1] + text[match.end() :]
        inner, unit = split_unit(value)
        currency = match["sign"] or "dollar"
        # "$5 dollars" is one unit said twice, "$5 per hour" a rate.
        return inner, unit if re.match(r"\s*(?:\\text\{)?\s*(?:dollars?|usd)\b", unit, re.I) else f"{currency} {unit}"
    text = re.sub(r"\s*\\usd\s*$", r"\\text{dollars}", text)
    text = re.sub(r"(?<=\d)\s*\\Omega\s*$", r"\\text{ ohm}", text)
    text = re.sub(r"(?<=[\d}])\s*\\text\s*\{\s*C\s*\}\s*$", r"\\text{ coulomb}", text)
    match = QUANTITY.match(text)
    return (match["value"].strip(), match["unit"].strip()) if match else (text, "")


def is_quantity(text: str) -> bool:
    """Whether a text is one value with a unit."""
    value, unit = split_unit(text)
    return bool(unit) and "\\text" not in value and parse_unit(unit) is not None


def total_of(text: str) -> str:
    """Add up `2 hours 30 minutes` to 150 minutes; other texts stay as they are."""
    plain = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).strip(" .")
    if not COMPOUND.fullmatch(plain):
        return text
    parts = [(Fraction(number), _look_up(word)) for number, word in COMPOUND_PART.findall(plain)]
    known = [(number, unit) for number, unit in parts if unit]
    factors = [Fraction(factor) for _, (factor, _) in known if not isinstance(factor, float)]
    dimensions = {dimension for _, (_, dimension) in known}
    if len(factors) < len(parts) or len(dimensions) > 1 or factors != sorted(set(factors), reverse=True):
        return text
    total = sum(number * factor for (number, _), factor in zip(known, factors, strict=True)) / factors[-1]
    return rf"{total}\text{{ {COMPOUND_PART.findall(plain)[-1][1]}}}"


def parse_unit(text: str) -> Unit | None:
    """The unit that a text spells, or None if it is not one."""
    text = re.sub(TEXT, lambda match: f" {match[0][match[0].index('{') + 1 : -1]} ", text)
    text = re.sub(r"\^\\circ\s*([CF])?\b", lambda m: f" °{m[1] or ''} ", text).strip()
    text = re.sub(r"\(\s*((?:[A-Za-z/ ^\d]|\\cdot(?![A-Za-z]))+)\s*\)", r"\1", text)
    text = re.sub(r"\bdegrees? (?=celsius|fahrenheit)", "", text, flags=re.IGNORECASE)
    unit, found, nouns, sign, next_power, position = Unit(), None, set(), 1, 1, 0
    product = False
    while position < len(text):
        match = TOKEN.match(text, position)
        if not match:
            return None
        position = match.end()
        if match["slash"]:
            sign = -1
            continue
        if match["dot"]:
            product = True
            continue
        word = match["word"].replace(" ", "")
        lower = word.lower()
        if lower == "per":
            sign = -1
        elif lower in ("square", "sq"):
            next_power = 2
        elif lower in ("cubic", "cu"):
            next_power = 3
        elif lower in ("squared", "cubed"):
            if found is None:  # the number is squared, not the unit
                return None
            extra = sign * (1 if lower == "squared" else 2)
            unit.factor *= found[0] ** extra
            unit.powers[found[1]] += extra
        elif lower in FILLERS:
            continue
        elif lower in NOT_UNITS or lower in NUMBER_WORDS or NOT_A_UNIT.fullmatch(lower):
            return None
        elif lower in SPEEDS:
            rate = parse_unit(SPEEDS[lower])
            assert rate is not None
            unit.factor *= rate.factor
            unit.powers |= rate.powers
        else:
            found = _look_up(word)
            if found is None:
                if len(word) < 3 or match["power"]:
                    return None
                found = (Fraction(1), _singular(lower))
                nouns.add(found[1])
            power = sign * next_power * int(match["power"] or 1)
            unit.factor *= found[0] ** power
            unit.powers[found[1]] = unit.powers.get(found[1], 0) + power
            next_power = 1
    if len(nouns) > 4 or (nouns and product):
        return None
    if not unit.powers:
        return None
    unit.powers = {dimension: power for dimension, power in unit.powers.items() if power}
    unit.nouns = frozenset(nouns)
    return unit


def _look_up(word: str) -> tuple[Fraction | float, str] | None:
    lower = word.lower()
    for spelling in (word, lower, _singular(lower), lower[:-1] if lower.endswith("s") and len(lower) > 2 else lower):
        if spelling in UNITS and (spelling == word or len(word) > 1):  # 5M is not 5 m
            return UNITS[spelling]
    return None


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word
