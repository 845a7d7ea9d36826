"""Compares what a program gave with what was expected: plain data on the host, never a program's objects."""

import math
import re
from typing import Any


TOLERANCE = 1e-6  # absolute, and relative to the expected value
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def same_float(actual: float, expected: float) -> bool:
    """Whether two floats are within the tolerance; NaN is close to NaN, an infinity to itself."""
    if not (math.isfinite(actual) and math.isfinite(expected)):
        return actual == expected or (actual != actual and expected != expected)
    return abs(actual - expected) <= TOLERANCE * max(1.0, abs(expected))


def same_output(actual: bytes, expected: str) -> bool:
    """
    Whether standard output is the expected one.

    Line by line; white space around lines and blank lines around the text do not count. Where an expected line has
    numbers with a decimal point or an exponent, it is compared token by token, those as floats, all else exactly.
    """
    try:
        text = actual.decode("utf-8")
    except UnicodeDecodeError:
        return False
    lines, expected_lines = ([line.strip() for line in side.strip().split("\n")] for side in (text, expected))
    return len(lines) == len(expected_lines) and all(map(_same_line, lines, expected_lines))


def _same_line(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    tokens, expected_tokens = actual.split(), expected.split()
    return (
        len(tokens) == len(expected_tokens)
        and any(map(_is_decimal, expected_tokens))
        and all(map(_same_token, tokens, expected_tokens))
    )


def _is_decimal(token: str) -> bool:
    return NUMBER.fullmatch(token) is not None and not token.lstrip("+-").isdigit()


def _same_token(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    if not _is_decimal(expected) or NUMBER.fullmatch(actual) is None:
        return False
    value = float(expected)
    return math.isfinite(value) and same_float(float(actual), value)


def same_value(actual: Any, expected: Any) -> bool:
    """
    Whether a returned value is the expected one, which comes from JSON.

    A tuple equals a list, 2.0 equals 2, floats may differ within the tolerance, a key equals its string (JSON has no
    other keys). A bool is no number, and a set no list.
    """
    if isinstance(expected, bool) or isinstance(actual, bool) or expected is None or isinstance(expected, str):
        return type(actual) is type(expected) and actual == expected
    if isinstance(expected, (int, float)):
        if not isinstance(actual, (int, float)):
            return False
        if isinstance(expected, int):
            return actual == expected
        if isinstance(actual, int):
            return actual == expected or (abs(actual) < 2**53 and same_float(float(actual), expected))
        return same_float(actual, expected)
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(actual, (list, tuple))
            and len(actual) == len(expected)
            and all(map(same_value, actual, expected))
        )
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or len(actual) != len(expected):
            return False
        by_name = {json_key(key): value for key, value in actual.items()}
        return len(by_name) == len(actual) and all(
            json_key(key) in by_name and same_value(by_name[json_key(key)], value) for key, value in expected.items()
        )
    return type(actual) is type(expected) and actual == expected


def json_key(key: object) -> str:
    """A dictionary's key as JSON writes it."""
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    return key if isinstance(key, str) else f"{key!r}"
