"""Encodes plain data as JSON, so that values can be compared without running the program's code.

Scalars are themselves where JSON has them; everything else is a list whose first item is a tag.
Long integers are hexadecimal: exact, read in linear time, and without a limit of digits.
"""

import collections
import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any


class NotPlainError(TypeError):
    """A value, or a part of it, has no encoding."""


SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
MUTABLE = (list, dict, set, collections.deque)
SHORT_BITS = 64  # an integer of fewer bits is encoded as itself
ARRAY_KINDS = "biufcSUmM"  # numpy's kinds of dtypes that hold plain data
BY_VALUE = (collections.Counter, collections.OrderedDict, collections.defaultdict)


def encode(value: Any, refer: Callable | None = None) -> Any:
    """
    Encode a value. Instances of subclasses count as their base (an `IntEnum` as an int, a `Counter` as a dict).

    Reads through the base classes' own methods, so no method of a subclass is called.

    Args:
        value (`Any`): What to encode.
        refer (`Callable`, *optional*): Encodes all that is not plain data, and containers of a program's own classes.

    Raises:
        NotPlainError: If there is no encoding for it.
        RecursionError: If it is nested too deeply, or contains itself.
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if isinstance(value, int):
        short = int.bit_length(value) < SHORT_BITS
        return int.__pos__(value) if short else ["int", int.__format__(value, "x")]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, str):
        return str.__str__(value)
    if refer and isinstance(value, MUTABLE) and kind not in MUTABLE and kind not in BY_VALUE:
        return refer(value)
    for tag, base in SEQUENCES.items():
        if isinstance(value, base):
            items = [encode(item, refer) for item in base.__iter__(value)]
            fields = getattr(kind, "_fields", None)
            if refer and tag == "tuple" and isinstance(fields, tuple) and len(fields) == len(items):
                return ["namedtuple", kind.__name__, list(fields), *items]
            return [tag, *items]
    if isinstance(value, dict):
        tag = "counter" if refer and kind is collections.Counter else "dict"
        return [tag, *[[encode(key, refer), encode(item, refer)] for key, item in dict.items(value)]]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes.hex(value)] if isinstance(value, bytes) else ["bytearray", bytearray.hex(value)]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if kind is range:
        return ["range", *[encode(part) for part in (value.start, value.stop, value.step)]]
    if kind is decimal.Decimal:
        return ["decimal", str(value)]
    if kind is fractions.Fraction:
        return ["fraction", encode(value.numerator), encode(value.denominator)]
    if kind in (datetime.datetime, datetime.date, datetime.time):
        return [kind.__name__, value.isoformat()]
    if kind is datetime.timedelta:
        return ["timedelta", *[encode(part) for part in (value.days, value.seconds, value.microseconds)]]
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return encode(value.item())
    if refer and (kind.__module__, kind.__name__) == ("numpy", "ndarray") and value.dtype.kind in ARRAY_KINDS:
        return ["array", value.dtype.str, list(value.shape), value.tobytes().hex()]
    if refer is not None:
        return refer(value)
    raise NotPlainError(f"a value of type {kind.__name__} is not plain data")


def decode(data: Any, resolve: Callable | None = None) -> Any:
    """
    The value of an encoding.

    Args:
        data (`Any`): What `encode` gave.
        resolve (`Callable`, *optional*): Called with (tag, items) for the tags that `encode`'s `refer` made.

    Raises:
        ValueError: If it is not an encoding.
        RecursionError: If it is nested too deeply.
    """
    if data is None or isinstance(data, (bool, int, str)):
        return data
    if not isinstance(data, list) or not data:
        raise ValueError("no encoding of plain data")
    tag, *rest = data
    try:
        return _decode_tagged(tag, rest, resolve)
    except (TypeError, ArithmeticError, IndexError) as error:  # unhashable keys, zero denominators, too few items
        raise ValueError(f"no encoding of a {tag}") from error


def _decode_tagged(tag: Any, rest: list, resolve: Callable | None) -> Any:
    if tag == "int":
        return int(rest[0], 16)
    if tag == "float":
        return float.fromhex(rest[0])
    if tag in SEQUENCES:
        return SEQUENCES[tag]([decode(item, resolve) for item in rest])
    if tag == "dict":
        return {decode(key, resolve): decode(value, resolve) for key, value in rest}
    if tag == "counter":
        return collections.Counter({decode(key, resolve): decode(value, resolve) for key, value in rest})
    if tag == "namedtuple":
        name, fields, *items = rest
        return collections.namedtuple(name, fields)(*[decode(item, resolve) for item in items])
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
    if tag == "timedelta":
        return datetime.timedelta(*[decode(part) for part in rest])
    if tag == "array" and resolve is not None:
        return _decode_array(*rest)
    if resolve is not None:
        return resolve(tag, rest)
    raise ValueError(f"unknown tag {tag!r}")


def _decode_array(kind: str, shape: list[int], content: str) -> Any:
    import numpy

    if numpy.dtype(kind).kind not in ARRAY_KINDS:
        raise ValueError("no encoding of an array")
    # One axis if empty: an empty array of several axes broadcasts with others to an empty result, which is all equal.
    array = numpy.frombuffer(bytes.fromhex(content), kind).reshape(shape if content else 0)
    # numpy rounds what an array is compared with to the array's dtype: in float16, large numbers become infinity
    return array.astype({"f": numpy.float64, "c": numpy.complex128}.get(array.dtype.kind, array.dtype))


def short_integer(digits: str) -> int:
    """Parse a JSON integer of at most as many digits as `encode` writes: parsing more takes quadratic time."""
    if len(digits) > 20:
        raise ValueError(f"an integer of {len(digits)} digits stands for itself")
    return int(digits)
