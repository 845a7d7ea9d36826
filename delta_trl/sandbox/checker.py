"""
Compares what a program gave with what was expected: plain data on the host, never a program's objects.

This runs in the trainer, and a hostile program can write output that is slow to compare. So it splits, converts and
hashes at most as many parts of the output as the expected value has.
"""

import math
import re
from decimal import Decimal
from typing import Any


TOLERANCE = 1e-6  # absolute, and relative to the expected value
TINY = 1e-9
MAX_DIGITS = 10_000  # of an integer that is compared with a decimal
MAX_KEY_DIGITS = 1000
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
    return text.count("\n") + 1 == len(lines) and all(map(_same_line, text.split("\n"), lines))


def _same_line(actual: str, expected: str) -> bool:
    actual, expected = actual.strip(), expected.strip()
    if actual == expected:
        return True
    tokens = expected.split()
    if not all(map(NUMBER.fullmatch, tokens)):
        return False
    actual_tokens = actual.split(None, len(tokens))
    return len(actual_tokens) == len(tokens) and all(map(_same_token, actual_tokens, tokens))


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
    return Decimal(actual) == Decimal(expected)


def same_value(actual: Any, expected: Any) -> bool:
    """
    Whether a returned value, as `codec.encode` writes it, is the expected one, which comes from JSON.

    A tuple equals a list, 2.0 equals 2, floats may differ within the tolerance, a key equals its string (JSON has no
    other keys). A bool is not a number, and a set is not a list.
    """
    if expected is None or isinstance(expected, (bool, str)):
        return type(actual) is type(expected) and actual == expected
    if isinstance(expected, (int, float)):
        return _same_number(_number(actual), expected)
    if not isinstance(actual, list) or not actual:
        return False
    tags = ("dict",) if isinstance(expected, dict) else ("list", "tuple")
    if actual[0] not in tags or len(actual) - 1 != len(expected):
        return False
    if not isinstance(expected, dict):
        return all(map(same_value, actual[1:], expected))
    by_name = {_key(pair[0]): pair[1] for pair in actual[1:] if isinstance(pair, list) and len(pair) == 2}
    return len(by_name) == len(expected) and all(
        json_key(key) in by_name and same_value(by_name[json_key(key)], value) for key, value in expected.items()
    )


def _same_number(actual: int | float | None, expected: int | float) -> bool:
    if actual is None or isinstance(expected, int):
        return actual == expected
    if isinstance(actual, int):
        return actual == expected or (abs(actual) < 2**53 and same_float(float(actual), expected))
    return same_float(actual, expected)


def _number(data: Any) -> int | float | None:
    """The number that is encoded, or None. Takes linear time: long integers are hexadecimal."""
    if type(data) is int:
        return data
    if not isinstance(data, list) or len(data) != 2 or not isinstance(data[1], str):
        return None
    try:
        if data[0] == "int":
            return int(data[1], 16)
        return float.fromhex(data[1]) if data[0] == "float" else None
    except (ValueError, OverflowError):
        return None


def _key(data: Any) -> str | None:
    """A dictionary's key, from its encoding, as JSON writes it; `None` if JSON cannot."""
    if data is None or isinstance(data, (bool, str)):
        return json_key(data)
    number = _number(data)
    if number is None or (isinstance(data, list) and len(data[1]) > MAX_KEY_DIGITS):
        return None  # writing it in decimal takes quadratic time
    return json_key(number)


def json_key(key: object) -> str:
    """A dictionary's key as JSON writes it."""
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    return key if isinstance(key, str) else f"{key!r}"
