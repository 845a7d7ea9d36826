"""
Compares what a program gave with what was expected: plain data on the host, never a program's objects.

This runs in the trainer, and a hostile program can write output that is slow to compare. So it splits and converts
at most as many parts of the output as the expected value has, and reads no JSON that has more or fewer.
"""

import json
import math
import re
from decimal import Context, Decimal
from typing import Any


TOLERANCE = 1e-6  # absolute, and relative to the expected value
TINY = 1e-9
MAX_DIGITS = 10_000  # of an integer that is compared with a decimal
EXPONENTS = Context(traps=[])  # an exponent that is too large makes a NaN, which equals nothing
STRUCTURE = b",[{"  # of JSON
# Possessive quantifiers: millions of digits before another character are read once
NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+")


def same_float(actual: float, expected: float) -> bool:
    """
    Whether two floats are within the tolerance; NaN is close to NaN, an infinity to itself. An expected value that is
    tiny and not zero allows the relative tolerance only: else zero would be right.
    """
    if not (math.isfinite(actual) and math.isfinite(expected)):
        return actual == expected or (actual != actual and expected != expected)
    absolute = 0.0 if 0 < abs(expected) < TINY else TOLERANCE
    return abs(actual - expected) <= max(absolute, TOLERANCE * abs(expected))


def same_output(actual: bytes, expected: str) -> bool:
    """
    Whether standard output is the expected one.

    Line by line; white space around lines and blank lines around the text do not count. A line in which numbers alone
    are expected is compared token by token: decimals within the tolerance, an integer as written or as a decimal of
    exactly that value (`1.0` for `1`, as LiveCodeBench has it). Any other line is text, and compared exactly.
    """
    try:
        text = actual.decode("utf-8").strip()
    except UnicodeDecodeError:
        return False
    lines = expected.strip().split("\n")
    if text.count("\n") + 1 != len(lines):
        return False
    return all(map(_same_line, text.split("\n"), lines))


def _same_line(actual: str, expected: str) -> bool:
    if actual.strip() == expected.strip():
        return True
    tokens = expected.split()
    if not all(map(NUMBER.fullmatch, tokens)):
        return False
    actual_tokens = actual.split(None, len(tokens))
    if len(actual_tokens) != len(tokens):
        return False
    return all(map(_same_token, actual_tokens, tokens))


def _is_decimal(token: str) -> bool:
    """Whether a number is written as a float: not 12345678. and 1e3, which may be the end of a sentence and a code."""
    return re.search(r"\.\d|[eE][+-]", token) is not None


def _same_token(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    if NUMBER.fullmatch(actual) is None:
        return False
    if _is_decimal(expected):
        value = float(expected)
        return math.isfinite(value) and same_float(float(actual), value)
    if not _is_decimal(actual) or max(len(actual), len(expected)) > MAX_DIGITS:
        return False
    return Decimal(actual, EXPONENTS) == Decimal(expected, EXPONENTS)


def same_json(actual: bytes, expected: Any) -> bool:
    """Whether JSON is that of an expected value, see `same_value`. Then it has as many commas and brackets."""
    try:
        wanted = json.dumps(expected).encode()
        if any(actual.count(mark) != wanted.count(mark) for mark in STRUCTURE):
            return False
        return same_value(json.loads(actual), expected)
    except (ValueError, RecursionError):
        return False


def same_value(actual: Any, expected: Any) -> bool:
    """
    Whether a value is the expected one; both come from JSON.

    2.0 equals 2, and floats may differ within the tolerance. A bool is not a number.
    """
    if {type(actual), type(expected)} <= {int, float}:
        return same_number(actual, expected)
    if type(actual) is not type(expected):
        return False
    if isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(
            same_value(actual[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(same_value, actual, expected))
    return actual == expected


def same_number(actual: float, expected: float) -> bool:
    if isinstance(expected, int) or (isinstance(actual, int) and abs(actual) >= 2**53):
        return actual == expected
    return same_float(float(actual), expected)
