"""Whether two quantities are equal: values with units, percentages, words for numbers."""

import re
from fractions import Fraction

import sympy

from .guards import RefusedError, refuse_restatement, refuse_undone
from .normalization import squeeze
from .parsing import fraction
from .units import parse_unit, split_unit
from .values import (
    APPROXIMATELY,
    TOLERANCE,
    equal_values,
    is_name,
    nearly_equal,
    numeric,
    read_number,
    split_equation,
    tolerance_of,
)
from .words import in_symbols, is_wordy, plain_words, same_words


UNIT_SIGN = re.compile(r"%|\\usd")


def equal_quantities(gold: str, answer: str) -> bool:
    """Compare two values with or without units: a missing unit is accepted, a different one is not."""
    if squeeze(gold) == squeeze(answer):
        return True
    chain, bare = split_equation(answer), answer.replace(r"\usd", " ")
    if len(chain) > 1 and bare != answer and not any(split_unit(side)[1] for side in split_equation(bare)):
        answer = rf"\usd {bare}"  # 40 + 2 = $42, $40 + $2 = $42
    elif len(chain) > 1:
        units = [UNIT_SIGN.findall(side)[-1:] or [split_unit(side)[1]] for side in chain]
        if any(unit[0] and (UNIT_SIGN.match(unit[0]) or parse_unit(unit[0])) for unit in units[:-1]) or "%" in answer:
            if not APPROXIMATELY.search(answer):  # 1/2 = 50%, 5 km = 5000 m
                return all(equal_quantities(gold, side) for side in chain if not is_name(side))
            if len({unit[0] for unit in units}) == 1:  # the unit that all sides have: `3.14 cm \approx 3 cm`
                unit, rest = units[0][0], answer.replace(units[0][0], "")
                answer = unit + rest if unit == r"\usd" else rest + unit
    gold, gold_percent = _strip_percent(gold)
    answer, answer_percent = _strip_percent(answer)
    if gold_percent or answer_percent:
        if split_unit(gold)[1] and parse_unit(split_unit(gold)[1]):
            return False
        return _equal_percentages(gold, gold_percent, answer, answer_percent)
    gold_name, gold = _strip_text_name(gold)
    answer_name, answer = _strip_text_name(answer)
    if gold_name and answer_name and plain_words(gold_name) != plain_words(answer_name):
        return False
    gold_value, gold_text = split_unit(gold)
    value, text = split_unit(answer)
    gold_unit = parse_unit(gold_text) if gold_text else None
    unit = parse_unit(text) if text else None
    if gold_unit is None:
        gold_value = gold
    if unit is None:
        value = answer
    if is_wordy(gold_value):
        return same_words(gold, answer)
    if is_wordy(value):
        symbols = in_symbols(gold_value, value)
        return symbols is not None and equal_values(*symbols)
    if gold_unit is None and unit is None:
        return equal_values(gold, answer)
    if gold_unit and unit:
        if not unit.same_dimension(gold_unit):
            return False
        if unit.factor == gold_unit.factor:
            return equal_values(gold_value, value)
        return _equal_scaled(gold_value, gold_unit.factor, value, unit.factor)
    known = gold_unit or unit
    degrees = "°" in (text + gold_text) or re.search(r"\\circ|deg", text + gold_text)
    if known and degrees and "\\pi" in (value if gold_unit else gold_value):  # π/2 equals 90°
        factor = known.factor
        return _equal_scaled(gold_value, factor if gold_unit else 1, value, factor if unit else 1)
    if _equal_or_refused(gold, answer):  # what looks like a unit may be a variable: 5m
        return True
    if gold_unit and not gold_unit.nouns and not re.search(r"\\|\s", gold_text) and len(gold_text) < 2:
        if not re.search(r"\\text|\s|\\circ|[€¢°]", gold[len(gold_value) :]):
            return False  # a gold 5m is five times m, not five metres
    return equal_values(gold_value, value)


def _strip_text_name(text: str) -> tuple[str, str]:
    r"""Split `\text{Area} = 5` into name and value."""
    match = re.match(r"\\text\s*\{([^{}=]*)\}\s*(?:_\{?\w+\}?\s*)?(?:=|:)\s*(?=.)", text)
    return (match[1], text[match.end() :].strip()) if match else ("", text)


def _strip_percent(text: str) -> tuple[str, bool]:
    stripped = re.sub(
        r"\s*(?:%|\\text\s*\{\s*(?:%|percent|per cent|percentage|pct)\s*\}|\bpercent\b|\bpct\b)\s*$", "", text
    )
    return stripped.strip(), stripped != text


def _equal_percentages(gold: str, gold_percent: bool, answer: str, answer_percent: bool) -> bool:
    """Compare where at least one is a percentage: 50% equals 50 and 0.5."""
    if gold_percent and answer_percent:
        return equal_values(gold, answer)
    hundredth = Fraction(1, 100)
    if gold_percent:
        return _equal_or_refused(gold, answer) or _equal_scaled(gold, hundredth, answer, 1)
    if _equal_scaled(gold, 1, answer, hundredth):
        return True
    value = fraction(gold)
    # Below one, the gold is a share, and 0.5% is not 0.5.
    return (value is None or abs(value) >= 1) and equal_values(gold, answer)


def _equal_scaled(gold: str, gold_factor: Fraction | float, answer: str, factor: Fraction | float) -> bool:
    """Compare after converting the units; the tolerance covers rounding only."""
    first, second = numeric(gold), numeric(answer)
    if first is None or second is None:
        return False
    refuse_restatement(gold, answer)
    refuse_undone(read_number(gold), read_number(answer))
    rounded = isinstance(gold_factor, float) or isinstance(factor, float)
    tolerance = TOLERANCE if rounded else tolerance_of(gold, answer)
    return nearly_equal(first * _sympify(gold_factor), second * _sympify(factor), tolerance)


def _sympify(factor: Fraction | float) -> sympy.Number:
    return sympy.Rational(factor) if isinstance(factor, (int, Fraction)) else sympy.Float(factor)


def _equal_or_refused(gold: str, answer: str) -> bool:
    try:
        return equal_values(gold, answer)
    except RefusedError:
        return False
