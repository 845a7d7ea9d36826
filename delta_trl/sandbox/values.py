"""Plain data across a process boundary, as JSON: what can be compared without running anybody's code.

Scalars are themselves where JSON has them; everything else is a list whose first item is a tag.
Integers are hexadecimal: linear in time to read, exact, and without a limit of digits.
"""

import collections
import datetime
import decimal
import fractions


class NotPlainError(TypeError):
    """A value, or a part of it, is no plain data."""


SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}


def encode(value):
    """Encode a value. Instances of subclasses count as their base (an `IntEnum` as an int, a `Counter` as a dict).

    Reads through the base classes' own methods, so no method of a subclass is called.

    Raises:
        NotPlainError: there is no encoding for it.
        RecursionError: it is nested too deeply, or contains itself.
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if isinstance(value, int):
        return ["int", int.__format__(value, "x") if kind is not int else format(value, "x")]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, str):
        return str.__str__(value)
    for base, tag in ((list, "list"), (tuple, "tuple"), (set, "set"), (frozenset, "frozenset"),
                      (collections.deque, "deque")):  # fmt: skip
        if isinstance(value, base):
            return [tag, *[encode(item) for item in base.__iter__(value)]]
    if isinstance(value, dict):
        return ["dict", *[[encode(key), encode(item)] for key, item in dict.items(value)]]
    if isinstance(value, (bytes, bytearray)):
        base = bytes if isinstance(value, bytes) else bytearray
        return [base.__name__, base.hex(value)]
    if isinstance(value, complex):
        return ["complex", complex.__complex__(value).real.hex(), complex.__complex__(value).imag.hex()]
    if kind is range:
        return ["range", *[encode(part) for part in (value.start, value.stop, value.step)]]
    if kind is decimal.Decimal:
        return ["decimal", str(value)]
    if kind is fractions.Fraction:
        return ["fraction", encode(value.numerator), encode(value.denominator)]
    if kind in (datetime.datetime, datetime.date, datetime.time):
        return [kind.__name__, value.isoformat()]
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return encode(value.item())
    raise NotPlainError(f"a value of type {kind.__name__} is no plain data")


def decode(data):
    """The value of an encoding.

    Raises:
        ValueError: it is no encoding.
        RecursionError: it is nested too deeply.
    """
    if data is None or isinstance(data, (bool, str)):
        return data
    if not isinstance(data, list) or not data:
        raise ValueError("no encoding of plain data")
    tag, *rest = data
    try:
        return _decode_tagged(tag, rest)
    except (TypeError, ArithmeticError) as error:  # unhashable keys, zero denominators, too few items
        raise ValueError(f"no encoding of a {tag}") from error


def _decode_tagged(tag, rest):
    if tag == "int":
        return int(rest[0], 16)
    if tag == "float":
        return float.fromhex(rest[0])
    if tag in ("list", "tuple", "set", "frozenset", "deque"):
        return SEQUENCES[tag]([decode(item) for item in rest])
    if tag == "dict":
        return {decode(key): decode(value) for key, value in rest}
    if tag in ("bytes", "bytearray"):
        return (bytes if tag == "bytes" else bytearray).fromhex(rest[0])
    if tag == "complex":
        return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
    if tag == "range":
        return range(*[decode(part) for part in rest])
    if tag == "decimal":
        return decimal.Decimal(rest[0])
    if tag == "fraction":
        return fractions.Fraction(decode(rest[0]), decode(rest[1]))
    if tag in ("datetime", "date", "time"):
        return getattr(datetime, tag).fromisoformat(rest[0])
    raise ValueError(f"unknown tag {tag!r}")
