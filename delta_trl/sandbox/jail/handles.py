"""The link between tests that are code and the program that they test, each in a process of its own.

The tests send one request at a time and wait for its reply. Plain data crosses by value. An object of the program
crosses as a key, for which the tests hold a `Handle`. The program sends nothing unasked, and gets nothing of the tests
but plain data, its own objects and Python's builtins by name.

A program may say anything about its objects, so no handle decides a test: it equals nothing and has no order, no
arithmetic and no items by index, and it is no context manager and no class of exceptions.
"""

import builtins
import contextlib
import io
import json
import os
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

from .. import codec


OPERATIONS = {
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    **{function.__name__: function for function in (getattr, setattr, delattr, len, iter, next, bool, str, repr)},
}
BUILTINS = {name: value for name, value in vars(builtins).items() if callable(value) and not name.startswith("_")}
# An end of iteration that came from a function would end a loop of the tests early, as if it were complete.
EXCEPTIONS = {
    name: value
    for name, value in BUILTINS.items()
    if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("Stop")
}


class ProgramError(Exception):
    """The program's process has ended, or has sent what is no reply."""


class NotForProgramsError(TypeError):
    """An object or a function of the tests was to be handed to the program."""


def send(descriptor: int, message: dict) -> None:
    data = json.dumps(message).encode()
    data = struct.pack("<Q", len(data)) + data
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int) -> dict:
    """Raises EOFError if the other process has ended."""
    (size,) = struct.unpack("<Q", _read(descriptor, 8))
    return json.loads(_read(descriptor, size))


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def serve(descriptor: int, operations: dict, printed: io.BytesIO) -> None:
    """
    The program's side: answer requests until the tests' process ends.

    Args:
        descriptor (`int`): A stream socket.
        operations (`dict`): What can be asked for besides `OPERATIONS`, by name.
        printed (`io.BytesIO`): Its standard output, which goes to the tests.
    """
    objects: list = []

    def refer(value: Any) -> list:
        objects.append(value)
        return ["handle", len(objects) - 1]

    def resolve(tag: str, rest: list) -> Any:
        return objects[rest[0]] if tag == "handle" else BUILTINS[rest[0]]

    def plain_or_text(value: Any) -> Any:
        try:
            return codec.encode(value)
        except (codec.NotPlainError, RecursionError):
            return str(value)

    while True:
        try:
            request = receive(descriptor)
        except EOFError:
            return
        args: list = []
        reply: dict
        try:
            args += [codec.decode(one, resolve) for one in [*request["args"], *request["kwargs"].values()]]
            kwargs = dict(zip(request["kwargs"], args[len(request["args"]) :], strict=True))
            function = (operations | OPERATIONS)[request["operation"]]
            reply = {"value": codec.encode(function(*args[: len(request["args"])], **kwargs), refer)}
        except BaseException as error:
            kind = next((kind.__name__ for kind in type(error).__mro__ if kind in EXCEPTIONS.values()), "Exception")
            stopped = request["operation"] == "next" and isinstance(error, StopIteration)
            arguments = error.args if type(error).__name__ == kind else [error]  # of its own classes, the text
            reply = {"error": "stop" if stopped else kind, "args": [*map(plain_or_text, arguments)]}
        # Its changes to containers that it was given.
        changed = {at: value for at, value in enumerate(args) if type(value) in CHANGEABLE or _is_array(value)}
        if changed and request["operation"] == "call":
            with contextlib.suppress(RecursionError):  # one that now contains itself stays as it was
                reply["changed"] = [[at, codec.encode(value, refer)] for at, value in changed.items()]
        reply["printed"] = printed.getvalue().decode("utf-8", "replace")
        printed.seek(0)
        printed.truncate()
        send(descriptor, reply)


CHANGEABLE = (*codec.CONTAINERS, bytearray)


def _is_array(value: Any) -> bool:
    return type(value).__name__ == "ndarray"


class Program:
    """
    The tests' side of the link.

    Args:
        descriptor (`int`): A stream socket.
    """

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.calls = 0  # how many requests may have changed an object
        self.lock = threading.Lock()  # tests may have threads

    def ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """
        The value of an operation of the program; raises its exception, if that is one of Python's, else an
        `Exception` with its text.
        """
        encoded = [codec.encode(one, refer) for one in args]
        named = {name: codec.encode(one, refer) for name, one in kwargs.items()}
        with self.lock:
            self.calls += operation in ("call", "setattr", "delattr")
            send(self.descriptor, {"operation": operation, "args": encoded, "kwargs": named})
            try:
                reply = receive(self.descriptor)
            except (EOFError, ConnectionError):
                raise ProgramError("the program has ended") from None
        if not isinstance(reply, dict):
            raise ProgramError("no reply")
        if sys.stdout is not sys.__stdout__:  # the tests read what is printed
            sys.stdout.write(str(reply.get("printed", "")))
        given = [*args, *kwargs.values()]
        for at, content in reply.get("changed", []):
            update(given[at], codec.decode(content, self.resolve))
        if "error" not in reply:
            return codec.decode(reply["value"], self.resolve)
        if reply["error"] == "stop" and operation == "next":
            raise StopIteration
        arguments = [codec.decode(one) for one in reply["args"]]
        try:
            error = EXCEPTIONS.get(reply["error"], Exception)(*arguments)
        except TypeError:  # UnicodeDecodeError and others need certain arguments
            error = Exception(*arguments)
        raise error

    def resolve(self, tag: str, rest: list) -> "Handle":
        if tag != "handle" or type(rest[0]) is not int:
            raise ProgramError("no value")
        handle = Handle()
        for name, value in (("_program", self), ("_key", rest[0]), ("_length", None), ("_iterated", False)):
            object.__setattr__(handle, name, value)
        return handle


def refer(value: Any) -> list:
    """The encoding of what the tests hand to the program besides plain data."""
    if type(value) is Handle:
        return ["handle", object.__getattribute__(value, "_key")]
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and BUILTINS.get(name) is value:
        return ["builtin", name]
    raise NotForProgramsError(f"a {type(value).__name__} of the tests cannot be handed to the program")


def update(old: Any, new: Any) -> None:
    """Replace the content of a container of the tests that the program has changed."""
    if type(old) is not type(new):
        return
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif type(old) in CHANGEABLE:
        old.clear()
        (old.extend if hasattr(old, "extend") else old.update)(new)
    elif _is_array(old) and old.shape == new.shape:
        old[...] = new


class Handle:
    """An object of the program. The tests may call it, use its attributes, take its length and iterate once."""

    __slots__ = ("_iterated", "_key", "_length", "_program")
    __hash__ = None  # type: ignore[assignment]  # sets and dicts would compare

    def __eq__(self, other: object) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return ask(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "delattr", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return ask(self, "call", *args, **kwargs)

    def __bool__(self) -> bool:
        return ask(self, "bool") is True

    def __str__(self) -> str:
        return ask(self, "str")

    def __repr__(self) -> str:
        return ask(self, "repr")

    def __len__(self) -> int:
        """Asked once, until something may have changed."""
        calls = object.__getattribute__(self, "_program").calls
        known = object.__getattribute__(self, "_length")
        if known is None or known[0] != calls:
            known = calls, ask(self, "len")
            object.__setattr__(self, "_length", known)
        return known[1]

    def __iter__(self) -> Iterator:
        """Once, and as many items as its length says if it has one: a loop would test too little."""
        if object.__getattribute__(self, "_iterated"):
            raise TypeError("an object of the program can be iterated once")
        object.__setattr__(self, "_iterated", True)
        try:
            length = len(self)
        except TypeError:
            length = None
        items = ask(self, "iter")
        return _items(items, length) if type(items) is Handle else iter(items)

    def __next__(self) -> Any:
        return ask(self, "next")


def _items(items: Handle, length: int | None) -> Iterator:
    given = 0
    with contextlib.suppress(StopIteration):
        while True:
            item = next(items)
            given += 1
            yield item
    if length not in (None, given):
        raise ProgramError(f"an object of length {length} has given {given} items")


def ask(handle: Handle, operation: str, *args: Any, **kwargs: Any) -> Any:
    return object.__getattribute__(handle, "_program").ask(operation, handle, *args, **kwargs)
