"""The link between tests that are code and the program that they test, each in a process of its own.

The tests send one request at a time and wait for its reply. Plain data crosses by value. An object of the program
crosses as a key, for which the tests hold a `Handle`. The program sends nothing unasked, and gets nothing of the tests
but plain data, its own objects and Python's builtins by name.

A program may say anything about its objects, so no handle decides a test: it equals nothing and has no order, no
arithmetic and no items by index, and it is no context manager and no class of exceptions. It has a length or can be
iterated once, not both: a loop over fewer items than it says would test too little. NaN crosses only where the tests
name it, because it passes every test of the form "fails if the difference is too large". A call changes containers of
the tests only if it returns None: a reference that reads them afterwards would see what the program left of them.
"""

import builtins
import functools
import io
import itertools
import json
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from .. import codec
from .confinement import LINK
from .program import write_line


@functools.cache
def event_loop() -> Any:
    """The event loop in which all coroutines of the program run."""
    import asyncio

    return asyncio.new_event_loop()


OPERATIONS: dict[str, Callable] = {
    "await": lambda coroutine: event_loop().run_until_complete(coroutine),
    # The end is an empty list. An end that came from a function would end a loop of the tests early.
    "next": lambda iterator: list(itertools.islice(iterator, 1)),
}
for function in (operator.call, type, isinstance, issubclass, getattr, setattr, len, iter, bool, str, repr):
    OPERATIONS[function.__name__] = function
BUILTINS = {name: value for name, value in vars(builtins).items() if callable(value) and not name.startswith("_")}
EXCEPTIONS = {
    name: value
    for name, value in BUILTINS.items()
    if isinstance(value, type) and issubclass(value, (Exception, SystemExit)) and not name.startswith("Stop")
}
CHANGEABLE = (*codec.CONTAINERS, bytearray)


class ProgramError(Exception):
    """The program's process has ended, or has sent what is no reply."""


class NotForProgramsError(TypeError):
    """An object or a function of the tests was to be handed to the program."""


class Link:
    """What comes over the link, a stream socket that carries lines of JSON."""

    def __init__(self) -> None:
        self.incoming = open(LINK, "rb", closefd=False)

    def receive(self) -> dict:
        """Raises ValueError or RecursionError if the other process has ended, or has sent what is no message."""
        return json.loads(self.incoming.readline(), parse_constant=int)  # of NaN: a ValueError, `codec` has its own


class Objects(codec.Codec):
    """The program's objects that the tests have got, by their keys."""

    def __init__(self) -> None:
        self.objects: list = []

    def refer(self, value: Any) -> list:
        self.objects.append(value)
        tag = "coroutine" if isinstance(value, types.CoroutineType) else "handle"
        return [tag, len(self.objects) - 1]

    def resolve(self, tag: str, content: Any) -> Any:
        if tag == "nan":
            return content
        return self.objects[content] if tag == "handle" else BUILTINS[content]


def serve(load: Callable, printed: io.BytesIO) -> None:
    """
    The program's side: answer requests until the tests' process ends. `load` gives the program as a module, and what
    it has `printed` goes to the tests.
    """
    link = Link()
    objects = Objects()
    operations = OPERATIONS | {"load": load}
    while True:
        try:
            request = link.receive()
        except ValueError:
            return
        try:
            reply = reply_to(request, objects, operations)
        except BaseException as error:
            reply = {"error": described(error)}
        reply["printed"] = printed.getvalue().decode("utf-8", "replace")
        printed.seek(0)
        printed.truncate()
        write_line(reply, LINK)


def reply_to(request: dict, objects: Objects, operations: dict[str, Callable]) -> dict:
    """The value of an operation, and the containers among its arguments if it has changed them."""
    args = objects.decode(request["args"])
    kwargs = objects.decode(request["kwargs"])
    value = operations[request["operation"]](*args, **kwargs)
    changed = {}
    if value is None:
        for at, argument in enumerate([*args, *kwargs.values()]):
            if type(argument) in CHANGEABLE or codec.is_array(argument):
                changed[at] = argument
    return {"value": objects.encode(value), "changed": objects.encode(changed)}


def described(error: BaseException) -> list:
    """The name of Python's nearest exception class, and its arguments for the same text."""
    kind = next((kind for kind in type(error).__mro__ if kind in EXCEPTIONS.values()), Exception)
    arguments = error.args
    is_plain = all(value is None or type(value) in (int, str) for value in arguments)
    if type(error) is not kind or len(arguments) > 1 or not is_plain:
        return [kind.__name__, str(error)]
    return [kind.__name__, *arguments]


class Program(codec.Codec):
    """The tests' side of the link."""

    def __init__(self, nan_is_named: bool) -> None:
        self.link = Link()
        self.nan_is_named = nan_is_named
        self.lock = threading.Lock()  # tests may have threads

    def ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """
        The value of an operation of the program; raises its exception, if that is one of Python's, else an
        `Exception` with its text.
        """
        request = {
            "operation": operation,
            "args": self.encode(args),
            "kwargs": self.encode(kwargs),
        }
        with self.lock:
            try:
                write_line(request, LINK)
                reply = self.link.receive()
            except (ValueError, RecursionError, OSError):
                raise ProgramError("the program has ended") from None
        if sys.stdout is not sys.__stdout__:  # the tests read what is printed
            sys.stdout.write(reply["printed"])
        if "error" in reply:
            raise exception(*reply["error"])
        value = self.decode(reply["value"])
        if value is None:
            arguments = [*args, *kwargs.values()]
            for at, content in self.decode(reply["changed"]).items():
                update(arguments[at], content)
        return value

    def refer(self, value: Any) -> list:
        if type(value) is Handle:
            return ["handle", value._handle_key]
        name = getattr(value, "__name__", None)
        if isinstance(name, str) and BUILTINS.get(name) is value:
            return ["builtin", name]
        raise NotForProgramsError(f"a {type(value).__name__} of the tests cannot be handed to the program")

    def resolve(self, tag: str, content: Any) -> Any:
        if tag == "nan" and self.nan_is_named:
            return content
        if tag not in ("handle", "coroutine"):
            raise ProgramError("no value, or NaN")
        handle = object.__new__(Handle)
        object.__setattr__(handle, "_ask_program", self.ask)
        object.__setattr__(handle, "_handle_key", content)
        object.__setattr__(handle, "_counted_by", None)
        return handle if tag == "handle" else self.wait_for(handle)

    async def wait_for(self, coroutine: "Handle") -> Any:
        return self.ask("await", coroutine)


def exception(kind: str, *arguments: Any) -> BaseException:
    try:
        return EXCEPTIONS.get(kind, Exception)(*arguments)
    except TypeError:  # UnicodeDecodeError needs other arguments
        return Exception(*arguments)


def update(old: Any, new: Any) -> None:
    """Replace the content of a container of the tests that the program has changed."""
    if codec.is_array(old) and codec.is_array(new) and old.shape == new.shape:
        old[...] = new
    if type(old) is not type(new) or type(old) not in CHANGEABLE:
        return
    old.clear()
    if isinstance(old, (dict, set)):
        old.update(new)
    else:
        old.extend(new)


class Handle:
    """An object of the program. The tests may call it, use its attributes, take its length or iterate it once."""

    __slots__ = ("_ask_program", "_counted_by", "_handle_key")
    __hash__ = None  # type: ignore[assignment]  # sets and dicts would compare

    def __eq__(self, other: object) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__name__":
            raise AttributeError(name)
        return self._ask_program("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask_program("setattr", self, name, value)

    def __instancecheck__(self, value: object) -> bool:
        return self._ask_program("isinstance", value, self) is True

    def __subclasscheck__(self, other: object) -> bool:
        return self._ask_program("issubclass", other, self) is True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask_program("call", self, *args, **kwargs)

    def __bool__(self) -> bool:
        return self._ask_program("bool", self) is True

    def __str__(self) -> str:
        return self._ask_program("str", self)

    def __repr__(self) -> str:
        return self._ask_program("repr", self)

    def __len__(self) -> int:
        self._count_by("length")
        return self._ask_program("len", self)

    def __iter__(self) -> Iterator:
        self._count_by("items")
        return self._ask_program("iter", self)

    def __next__(self) -> Any:
        for item in self._ask_program("next", self):
            return item
        raise StopIteration

    def _count_by(self, what: str) -> None:
        if self._counted_by and "items" in (self._counted_by, what):
            raise TypeError("an object of the program has a length, or can be iterated once")
        object.__setattr__(self, "_counted_by", what)


def class_of(value: Any, *rest: Any) -> Any:
    """`type` for the tests: the class of a program's object is such an object, too, and has a name."""
    if type(value) is Handle:
        return value._ask_program("type", value)
    return type(value, *rest)
