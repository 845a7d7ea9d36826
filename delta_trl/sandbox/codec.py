"""Encodes plain data as JSON, for the link between tests that are code and the program.

Scalars are themselves where JSON has them; everything else is a list whose first item is a tag.
"""

import abc
import collections
import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any


NAMED_TUPLES: dict[tuple, Any] = {}  # the classes that this process knows, by their names and fields
SEQUENCES: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
}
CONTAINERS = (list, set, dict, collections.deque)
# Other types of the standard library: how to make a value of plain arguments, and these arguments.
TEXTS = (decimal.Decimal, fractions.Fraction, complex)
DATES = (datetime.datetime, datetime.date, datetime.time)
PARTS: dict[type, tuple[Callable, Callable]] = {
    **{kind: (kind, lambda value: [str(value)]) for kind in TEXTS},
    **{kind: (kind.fromisoformat, lambda value: [value.isoformat()]) for kind in DATES},
    **{kind: (kind.fromhex, lambda value: [value.hex()]) for kind in (bytes, bytearray)},
    range: (range, lambda value: [value.start, value.stop, value.step]),
    float: (float.fromhex, lambda value: [float.hex(value)]),
    datetime.timedelta: (datetime.timedelta, lambda value: [value.days, value.seconds, value.microseconds]),
}
DATE_KINDS = "mM"  # numpy's kinds of dtypes for dates and times
ARRAY_KINDS = "biufcSU" + DATE_KINDS  # and all that hold plain data


def is_array(value: Any) -> bool:
    kind = type(value)  # known by its name, since numpy may not be there
    return (kind.__module__, kind.__name__) == ("numpy", "ndarray") and value.dtype.kind in ARRAY_KINDS


def without_arrays(value: Any) -> Any:
    """An array as a list."""
    return value.tolist() if is_array(value) else value


class Codec(abc.ABC):
    """Encodes and decodes plain data. The two ends of a link say what becomes of anything else."""

    @abc.abstractmethod
    def refer(self, value: Any) -> list:
        """The encoding of what is not plain data: a tag, and more."""

    @abc.abstractmethod
    def resolve(self, tag: str, content: Any) -> Any:
        """The value for a tag of the other end's `refer`. "nan" is the tag of a value that is NaN or has one."""

    def encode(self, value: Any) -> Any:
        """
        Encode a value. Containers of a program's own classes are not plain data.

        Other instances of subclasses count as their base (an `IntEnum` as an int, a `Counter` as a dict). They are
        read through the base classes' own methods, as JSON reads integers and texts.

        Raises:
            RecursionError: If it is nested too deeply, or contains itself.
        """
        kind = type(value)
        if value is None or isinstance(value, (int, str)):
            return value
        if isinstance(value, float):
            return ["float", float.hex(value)]
        if isinstance(value, CONTAINERS) and kind.__module__ not in ("builtins", "collections"):
            return self.refer(value)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            NAMED_TUPLES[kind.__name__, kind._fields] = kind
            return ["namedtuple", kind.__name__, kind._fields, *map(self.encode, tuple.__iter__(value))]
        for tag, base in SEQUENCES.items():
            if isinstance(value, base):
                return [tag, *map(self.encode, base.__iter__(value))]
        if isinstance(value, dict):
            return ["dict", *map(self.encode, dict.items(value))]
        if kind in PARTS:
            _, parts = PARTS[kind]
            return [kind.__name__, *parts(value)]
        if is_array(value):
            return ["array", value.dtype.str, list(value.shape), value.tobytes().hex()]
        if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():  # a number, not an array
            return self.encode(value.item())
        return self.refer(value)

    def decode(self, data: Any) -> Any:
        """
        The value of an encoding.

        Raises:
            ValueError, TypeError, ArithmeticError, IndexError: If it is not an encoding.
            RecursionError: If it is nested too deeply.
        """
        if not isinstance(data, list):
            return data
        tag, *rest = data
        if tag == "namedtuple":
            name, fields, *items = rest
            kind = named_tuple(name, tuple(fields))
            return kind(*map(self.decode, items))
        if tag == "dict":
            return dict(map(self.decode, rest))
        if tag in SEQUENCES:
            return SEQUENCES[tag](map(self.decode, rest))
        if tag not in MAKERS:
            (content,) = rest
            return self.resolve(tag, content)
        value = MAKERS[tag](*rest)
        is_itself = (value == value).all() if tag == "array" else value == value
        return value if is_itself else self.resolve("nan", value)


def named_tuple(name: str, fields: tuple[str, ...]) -> Any:
    """A class of named tuples. The program gets its own classes back."""
    key = (name, fields)
    if key not in NAMED_TUPLES:
        NAMED_TUPLES[key] = collections.namedtuple(name, fields)
    return NAMED_TUPLES[key]


def decode_array(kind: str, shape: list[int], content: str) -> Any:
    import numpy

    array = numpy.frombuffer(bytes.fromhex(content), kind).reshape(shape)
    if array.dtype.kind in DATE_KINDS:
        return array.copy()
    # numpy rounds what an array is compared with to its dtype, and narrow integers wrap around. Of Python's numbers
    # it makes wide ones. Lists also lose the axes behind an empty one: with these, an empty array broadcasts with a
    # row to an empty result, which is all equal.
    return numpy.array(array.tolist())


MAKERS = {"array": decode_array, **{kind.__name__: make for kind, (make, _) in PARTS.items()}}
