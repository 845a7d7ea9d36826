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
CONTAINERS = (list, dict, set, collections.deque)
BY_VALUE = (*CONTAINERS, collections.Counter, collections.OrderedDict, collections.defaultdict)
SHORT_BITS = 64  # an integer of fewer bits is encoded as itself
ARRAY_KINDS = "biufcSUmM"  # numpy's kinds of dtypes that hold plain data
# Other types of the standard library: by tag, the type, how to make it of plain arguments, and these arguments.
PARTS: dict[str, tuple[type, Callable, Callable]] = {
    "complex": (complex, complex, lambda value: [value.real, value.imag]),
    "range": (range, range, lambda value: [value.start, value.stop, value.step]),
    "bytes": (bytes, bytes.fromhex, lambda value: [bytes.hex(value)]),
    "bytearray": (bytearray, bytearray.fromhex, lambda value: [bytearray.hex(value)]),
    "decimal": (decimal.Decimal, decimal.Decimal, lambda value: [str(value)]),
    "fraction": (fractions.Fraction, fractions.Fraction, lambda value: [value.numerator, value.denominator]),
    "datetime": (datetime.datetime, datetime.datetime.fromisoformat, lambda value: [value.isoformat()]),
    "date": (datetime.date, datetime.date.fromisoformat, lambda value: [value.isoformat()]),
    "time": (datetime.time, datetime.time.fromisoformat, lambda value: [value.isoformat()]),
    "timedelta": (
        datetime.timedelta,
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
    ),
}
TAGS = {kind: tag for tag, (kind, _, _) in PARTS.items()}


def encode(value: Any, refer: Callable | None = None) -> Any:
    """
    Encode a value. Instances of subclasses count as their base (an `IntEnum` as an int, a `Counter` as a dict).

    Reads through the base classes' own methods, so no method of a subclass is called.

    Args:
        value (`Any`): What to encode.
        refer (`Callable`, *optional*):
            Encodes what is not plain data, and containers of a program's own classes; also makes arrays plain data.

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
    if refer and isinstance(value, CONTAINERS) and kind not in BY_VALUE:
        return refer(value)
    for tag, base in SEQUENCES.items():
        if isinstance(value, base):
            return [tag, *[encode(item, refer) for item in base.__iter__(value)]]
    if isinstance(value, dict):
        return ["dict", *[[encode(key, refer), encode(item, refer)] for key, item in dict.items(value)]]
    if kind in TAGS:
        _, _, arguments = PARTS[TAGS[kind]]
        return [TAGS[kind], *map(encode, arguments(value))]
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
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise ValueError("no encoding of plain data")
    tag, *rest = data
    try:
        if tag == "int":
            return int(rest[0], 16)
        if tag == "float":
            return float.fromhex(rest[0])
        if tag in SEQUENCES:
            return SEQUENCES[tag]([decode(item, resolve) for item in rest])
        if tag == "dict":
            return {decode(key, resolve): decode(value, resolve) for key, value in rest}
        if tag in PARTS:
            return PARTS[tag][1](*map(decode, rest))
        if tag == "array" and resolve is not None:
            return _decode_array(*rest)
    except (TypeError, ArithmeticError, IndexError) as error:  # unhashable keys, zero denominators, too few items
        raise ValueError(f"no encoding of a {tag}") from error
    if resolve is None:
        raise ValueError(f"unknown tag {tag!r}")
    return resolve(tag, rest)


def _decode_array(kind: str, shape: list[int], content: str) -> Any:
    import numpy

    if numpy.dtype(kind).kind not in ARRAY_KINDS:
        raise ValueError("no encoding of an array")
    # One axis if empty: an empty array of several axes broadcasts with others to an empty result, which is all equal.
    array = numpy.frombuffer(bytes.fromhex(content), kind).reshape(shape if content else 0)
    # Widened: numpy rounds what an array is compared with to its dtype, and narrow integers wrap around.
    wide = {"f": numpy.float64, "c": numpy.complex128, "i": numpy.int64}.get(array.dtype.kind, array.dtype)
    if array.dtype.kind == "u":
        wide = numpy.int64 if array.dtype.itemsize < 8 else numpy.uint64
    return array.astype(wide)


def short_integer(digits: str) -> int:
    """Parse a JSON integer of at most as many digits as `encode` writes: parsing more takes quadratic time."""
    if len(digits) > 20:
        raise ValueError(f"an integer of {len(digits)} digits stands for itself")
    return int(digits)
