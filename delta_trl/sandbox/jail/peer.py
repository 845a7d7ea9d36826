"""Two processes that use each other's objects: tests in one, the program that they test in the other.

Plain data crosses by value, everything else as a reference, which arrives as a `Remote`. Calls nest: while one side
waits for an answer it serves the other's calls. The owner of a remote object controls what it does. So an operation
that could decide a test (`==`, `in`, an ordering, arithmetic with plain data) is not delegated but decided here.

The program can send any request, also without its copy of this module. So the tests' side lets it use only objects
that the tests have passed to it, and these only as `guard` permits.
"""

import builtins
import collections
import contextlib
import hashlib
import importlib
import io
import itertools
import json
import operator
import os
import struct
import sys
import threading
import types
from typing import Any

from .. import codec


ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift",
              "rshift")  # fmt: skip
ORDER = ("lt", "le", "gt", "ge")
UNARY = ("neg", "pos", "abs", "invert")
OPERATIONS = {
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "await": lambda coroutine: importlib.import_module("asyncio").run(coroutine),
    "isinstance": isinstance,
    "issubclass": issubclass,
    "base": lambda value: content(value),
    "enter": lambda manager: manager.__enter__(),
    "exit": lambda manager: manager.__exit__(None, None, None),
    **{function.__name__: function for function in (getattr, setattr, delattr, len, iter, next, bool, str, repr, int,
                                                    float, hash, reversed)},
    **{name: getattr(operator, name) for name in (*ARITHMETIC, *ORDER, *UNARY, "eq", "getitem", "setitem", "delitem")},
}  # fmt: skip
# Questions that change nothing. Until anything else is done, the first answer to each counts.
READING = {"len", "iter", "getitem", "reversed", "isinstance", "issubclass", "bool", "str", "repr", "int", "float",
           "hash", "state", "base", "name"}  # fmt: skip
# What the program may do with an object that the tests have passed to it, besides using its public attributes.
PUBLIC_OPERATIONS = {"call", "isinstance", "issubclass", "enter", "exit", "len", "iter", "next", "bool", "str", "repr",
                     "int", "float", "hash", "reversed", "getitem", "setitem", "delitem", *ARITHMETIC, *ORDER,
                     *UNARY}  # fmt: skip
# Classes only: a function such as `exec`, named by the program, would run in the tests' process.
BUILTIN_CLASSES = {name: value for name, value in vars(builtins).items()
                   if isinstance(value, type) and value.__name__ == name}  # fmt: skip


class RemoteError(RuntimeError):
    """The other process raised something that has no equivalent here, or has ended."""


class Peer:
    """
    One end of the link.

    Args:
        descriptor (`int`): A stream socket.
        guarded_module (`str`, *optional*):
            On the tests' side, the name of their module. The program may use public attributes only of instances of
            its classes: a function's attributes lead to everything.
        printed (`io.BytesIO`, *optional*):
            On the program's side, its standard output. Tests that redirect standard output receive it.
    """

    def __init__(self, descriptor: int, guarded_module: str | None = None, printed: io.BytesIO | None = None):
        self.descriptor = descriptor
        self.guarded_module = guarded_module
        self.printed = printed
        self.exports: dict[int, object] = {}
        self.export_keys: dict[int, int] = {}
        self.imports: dict[int, object] = {}
        self.served: dict[str, object] = {}
        self.reading = False  # whether it waits for the answer to a question in READING
        self.answers: dict[str, dict[str, dict]] = {}  # to these questions, by what they are asked of
        self.contents: dict[int, Any] = {}  # of containers, and what iterators have given so far
        self.lock = threading.RLock()  # one conversation at a time; callbacks nest within it

    # messages

    def send(self, message: dict) -> None:
        if self.printed and self.printed.tell():
            message["printed"] = self.printed.getvalue().decode("utf-8", "replace")
            self.printed.seek(0)
            self.printed.truncate()
        data = json.dumps(message).encode()
        data = struct.pack("<Q", len(data)) + data
        while data:
            data = data[os.write(self.descriptor, data) :]

    def receive(self) -> dict:
        (size,) = struct.unpack("<Q", self.read(8))
        message = json.loads(self.read(size))
        if "printed" in message and sys.stdout is not sys.__stdout__:  # else nobody reads it
            sys.stdout.write(message["printed"])
        return message

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self.descriptor, min(size, 1 << 20))
            if not part:
                raise RemoteError("the other process has ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    # calls out

    def request(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """Have the other side do an operation; returns its value or raises its exception."""
        with self.lock:
            encoded = [self.encode(argument) for argument in args]
            named = {name: self.encode(value) for name, value in kwargs.items()}
            question = {"operation": operation, "args": encoded, "kwargs": named}
            if operation in READING:
                message = self.ask_once(question)
            else:
                if operation != "next":
                    self.forget()
                elif not self.reading:  # it changes only what it is asked of
                    self.answers.pop(json.dumps(encoded[0]), None)
                message = self.converse(question)
            if "changed" in message:
                for argument, changed in zip(args, message["changed"], strict=True):
                    update(argument, self.decode(changed))
            if "error" in message:
                raise self.exception(message["error"], stops=operation == "next")
            if "argument" in message:  # it returned what it was given
                return args[message["argument"]]
            return self.decode(message["value"])

    def ask_once(self, question: dict) -> dict:
        key, answers = json.dumps(question), self.answers.setdefault(json.dumps(question["args"][0]), {})
        if key not in answers:
            self.reading, before = True, self.reading
            try:
                answers[key] = self.converse(question)
            finally:
                self.reading = before
        return answers[key]

    def forget(self) -> None:
        """Something may have changed, but not because of what the other side does when it is only asked."""
        if not self.reading:
            self.answers, self.contents = {}, {}

    def converse(self, question: dict) -> dict:
        """Send a request and serve the other side's until its answer comes."""
        self.send(question)
        while "operation" in (message := self.receive()):
            self.answer(message)
        return message

    # calls in

    def serve(self) -> None:
        """Answer requests until the other side ends."""
        while True:
            try:
                message = self.receive()
            except RemoteError:
                return
            self.answer(message)

    def answer(self, message: dict) -> None:
        self.forget()
        try:
            args = [self.decode(argument) for argument in message["args"]]
            kwargs = {name: self.decode(value) for name, value in message["kwargs"].items()}
            value = self.operation(message, args)(*args, **kwargs)
            reply: dict[str, Any] = next(
                ({"argument": index} for index, argument in enumerate(args)
                 if argument is value and isinstance(value, codec.MUTABLE)),
                {},
            ) or {"value": self.encode(value)}  # fmt: skip
        except BaseException as error:
            args = locals().get("args", [])
            reply = {"error": self.describe(error)}
        try:
            after = [self.encode(argument) for argument in args]
            if args and after != message["args"]:
                reply["changed"] = after
        except RecursionError:
            pass  # an argument now contains itself; the caller keeps its own copy
        self.send(reply)

    def operation(self, message: dict, args: list) -> Any:
        name = message["operation"]
        if name in self.served:
            return self.served[name]
        if self.guarded_module is not None:
            self.guard(name, message["args"], args)
        return OPERATIONS[name]

    def guard(self, name: str, encoded: list, args: list) -> None:
        """Raise AttributeError if the program may not do this with these objects."""
        given = [isinstance(one, list) and one[:1] == ["yours"] for one in encoded]
        if name == "eq" and all(given):  # two of the tests' objects
            return
        if given[0] or (name in ARITHMETIC and given[1]):
            if name in PUBLIC_OPERATIONS:
                return
            kind = type(args[0])
            if kind.__module__ == self.guarded_module and isinstance(args[1], str) and not args[1].startswith("_"):
                # Methods cannot be replaced: the program's own would decide the tests that call them.
                if name == "getattr" or (name == "setattr" and not callable(getattr(kind, args[1], None))):
                    return
        raise AttributeError(f"{name} is not allowed on objects of the tests")

    # references

    def encode(self, value: Any) -> Any:
        return codec.encode(value, self.refer)

    def decode(self, data: Any) -> Any:
        return codec.decode(data, self.resolve)

    def refer(self, value: Any) -> list:
        if type(value) in REMOTE_TYPES:
            return ["yours", object.__getattribute__(value, "_key")]
        if isinstance(value, type) and BUILTIN_CLASSES.get(value.__name__) is value:
            return ["builtin", value.__name__]
        key = self.export_keys.setdefault(id(value), len(self.export_keys))
        self.exports[key] = value  # kept alive, so that no other object gets its id
        if isinstance(value, type) and issubclass(value, Exception):
            bases = [self.refer(base) for base in value.__bases__ if issubclass(base, Exception)]
            return ["exception", key, value.__name__, bases]
        if isinstance(value, types.CoroutineType):
            return ["coroutine", key]
        kind = "class" if isinstance(value, type) else "object"
        base = next((base.__name__ for base in codec.MUTABLE if isinstance(value, base)), None)
        return ["mine", key, kind, base]

    def resolve(self, tag: str, rest: list) -> Any:
        if tag == "yours":
            return self.exports[rest[0]]
        if tag == "builtin":
            return BUILTIN_CLASSES[rest[0]]
        if tag not in ("mine", "exception", "coroutine"):
            raise ValueError(f"unknown tag {tag!r}")
        key = rest[0]
        if key not in self.imports:
            self.imports[key] = self.represent(tag, *rest)
        return self.imports[key]

    def represent(self, tag: str, key: int, *details: Any) -> Any:
        if tag == "exception":
            name, bases = details
            return type(name, tuple(exception_type(self.decode(base)) for base in bases), {"__str__": given_text})
        kind, base = details if tag == "mine" else ("object", None)
        remote = RemoteClass() if kind == "class" else Remote()
        for name, value in (("_peer", self), ("_key", key), ("_base", CONTAINERS.get(base))):
            object.__setattr__(remote, name, value)
        if tag == "coroutine":

            async def awaited():
                return self.request("await", remote)

            return awaited()
        return remote

    # exceptions

    def describe(self, error: BaseException) -> dict:
        arguments, attributes = [], {}
        for argument in getattr(error, "args", ()):
            try:
                arguments.append(codec.encode(argument))
            except (codec.NotPlainError, RecursionError):
                arguments.append(repr(argument))
        for name, value in getattr(error, "__dict__", {}).items():
            try:
                attributes[name] = codec.encode(value)
            except (codec.NotPlainError, RecursionError):
                continue
        kind = type(error) if isinstance(error, Exception) else RuntimeError
        text = None
        if BUILTIN_CLASSES.get(kind.__name__) is not kind:
            with contextlib.suppress(Exception):
                text = str(error)
        return {"type": self.refer(kind), "args": arguments, "attributes": attributes, "text": text}

    def exception(self, description: dict, stops: bool) -> BaseException:
        kind = exception_type(self.decode(description["type"]))
        arguments = [codec.decode(argument) for argument in description["args"]]
        if issubclass(kind, (StopIteration, StopAsyncIteration)) and not stops:
            # It would end a loop over map() in the tests early, as if it were complete.
            return RemoteError(f"{kind.__name__} was raised")
        try:
            error = kind(*arguments)
        except Exception:  # UnicodeDecodeError and others need certain arguments
            error = RemoteError(f"{kind.__name__}: {arguments}")
        for name, value in description["attributes"].items():
            if not name.startswith("__"):
                setattr(error, name, codec.decode(value))
        if isinstance(description.get("text"), str):
            vars(error)["__text__"] = description["text"]
        return error


CONTAINERS = {base.__name__: base for base in codec.MUTABLE}


def exception_type(kind: Any) -> type:
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise ValueError(f"no exception: {kind!r}")
    return kind


def given_text(error: Exception) -> str:
    """`__str__` of a remote exception."""
    return vars(error).get("__text__") or Exception.__str__(error)


def update(old: Any, new: Any) -> None:
    """Replace a container's content by that of another one of its type, recursively and in place."""
    if not _same_kind(old, new):
        return
    if isinstance(old, (list, collections.deque)):
        items = [_updated(*pair) for pair in zip(old, new, strict=False)]
        items += list(new)[len(items) :]
        old.clear()
        old.extend(items)
    elif isinstance(old, dict):
        content = {key: _updated(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(content)
    elif isinstance(old, set):
        old.clear()
        old.update(new)
    elif isinstance(old, bytearray):
        old[:] = new
    elif old.shape == new.shape:
        old[...] = new


def _same_kind(old: Any, new: Any) -> bool:
    kind = type(old)
    return kind is type(new) and (kind in (*codec.MUTABLE, bytearray) or kind.__name__ == "ndarray")


def _updated(old, new):
    if not _same_kind(old, new):
        return new
    update(old, new)
    return old


class Remote:
    """An object of the other process."""

    __slots__ = ("_base", "_key", "_peer")

    @property  # type: ignore[misc]  # without a setter
    def __class__(self):  # a program's subclass of dict is a dict to isinstance
        return object.__getattribute__(self, "_base") or type(self)

    def __getattr__(self, name):
        if name.startswith("__") and name not in ("__name__", "__dict__"):
            raise AttributeError(name)
        return ask(self, "getattr", name)

    def __setattr__(self, name, value):
        ask(self, "setattr", name, value)

    def __delattr__(self, name):
        ask(self, "delattr", name)

    def __call__(self, *args, **kwargs):
        return ask(self, "call", *args, **kwargs)

    def __eq__(self, other):
        """
        Two of the program's objects are equal if they are the same object, or of the same class and in the same state,
        which must not be empty. Two of the tests' objects are equal if their own `==` says so. A container is equal to
        plain data if its content is.
        """
        if type(other) is type(self):
            if object.__getattribute__(self, "_key") == object.__getattribute__(other, "_key"):
                return True
            if object.__getattribute__(self, "_peer").guarded_module is None:
                return ask(self, "eq", other) is True
            ours, theirs = ask(self, "state"), ask(other, "state")
            return ours is not None and ours == theirs
        return is_container(self) and plain(self) == other

    def __iter__(self):
        return iter(plain(self)) if is_container(self) else items_of(self, "iter")

    def __reversed__(self):
        return reversed(plain(self)) if is_container(self) else items_of(self, "reversed")

    def __len__(self):
        if is_container(self):
            return len(plain(self))
        length = ask(self, "len")
        if type(length) is not int:
            raise TypeError("__len__ gave no int")
        return length

    def __getitem__(self, key):
        if is_container(self) and isinstance(key, slice):
            return plain(self)[key]
        item = ask(self, "getitem", key)
        if is_container(self):
            encode = object.__getattribute__(self, "_peer").encode
            with contextlib.suppress(LookupError, TypeError):
                if encode(item) != encode(plain(self)[key]):
                    raise RemoteError("a container has given another item than the one that it holds")
        return item

    def __contains__(self, item):
        found = (item is each or item == each for each in self)
        if length_of(self) is not None:
            return any(list(found))  # reads to the end, where the length is checked
        return any(found)

    def __enter__(self):
        return ask(self, "enter")

    def __exit__(self, *exception):
        return ask(self, "exit")

    def __bool__(self):
        return bool(plain(self) if is_container(self) else ask(self, "bool"))


class RemoteClass(Remote):
    """A class of the other process."""

    __slots__ = ()

    def __instancecheck__(self, instance):
        return type(instance) in REMOTE_TYPES and ask(instance, "isinstance", self) is True

    def __subclasscheck__(self, subclass):
        return type(subclass) in REMOTE_TYPES and ask(subclass, "issubclass", self) is True


REMOTE_TYPES = (Remote, RemoteClass)


def ask(remote: Remote, operation: str, *args: Any, **kwargs: Any) -> Any:
    return object.__getattribute__(remote, "_peer").request(operation, remote, *args, **kwargs)


def is_container(remote):
    """Whether it is of a program's own class of lists, dicts, sets or deques."""
    return object.__getattribute__(remote, "_base") is not None


def plain(remote):
    """The content of a remote container, read by its base class's own methods."""
    peer, key, base = (object.__getattribute__(remote, name) for name in ("_peer", "_key", "_base"))
    if key not in peer.contents:
        items = ask(remote, "base")
        if type(items) is not base:
            raise TypeError("a container has no content")
        peer.contents[key] = items
    return peer.contents[key]


def items_of(remote, operation):
    """An iterator over a remote object's items, as many as its length says if it has one."""
    length, items = length_of(remote), ask(remote, operation)
    if items is not remote:
        items = replayed(items)
    return items if length is None else counted(items, length)


def length_of(remote):
    """A program's object's length, if it has one."""
    if object.__getattribute__(remote, "_peer").guarded_module is not None:
        with contextlib.suppress(TypeError):
            return len(remote)
    return None


def replayed(items):
    """The items of a remote iterator: if an equal one is read again, the same ones."""
    known = object.__getattribute__(items, "_peer").contents.setdefault(object.__getattribute__(items, "_key"), [])
    for position in itertools.count():
        if position == len(known):
            try:
                known.append(next(items))
            except StopIteration:
                break
        yield known[position]


def counted(items, length):
    """The items of an iterator. Raises RemoteError if there are fewer or more: a loop would test too little."""
    given = 0
    with contextlib.suppress(StopIteration):
        while True:
            item = next(items)
            given += 1
            yield item
    if given != length:
        raise RemoteError(f"an object of length {length} has given {given} items")


def _define(name: str, operation: str, result: type | None = None) -> None:
    def method(self, *args):
        value = ask(self, operation, *args)
        if result is not None and type(value) is not result:
            raise TypeError(f"{name} gave no {result.__name__}")
        return value

    setattr(Remote, name, method)


def _define_arithmetic(name: str) -> None:
    def refused(remote, other):
        # On the tests' side: a program's object that gets an expected number can return the right difference.
        return type(other) not in REMOTE_TYPES and object.__getattribute__(remote, "_peer").guarded_module is not None

    def method(self, other):
        return NotImplemented if refused(self, other) else ask(self, name, other)

    def reflected(self, other):
        if refused(self, other):
            return NotImplemented
        return object.__getattribute__(self, "_peer").request(name, other, self)

    setattr(Remote, f"__{name.rstrip('_')}__", method)
    setattr(Remote, f"__r{name.rstrip('_')}__", reflected)


def _define_order(name: str) -> None:
    def method(self, other):
        if type(other) not in REMOTE_TYPES:
            return NotImplemented  # a program's object must not decide how it compares with an expected number
        return ask(self, name, other) is True

    setattr(Remote, f"__{name}__", method)


for _name in ARITHMETIC:
    _define_arithmetic(_name)
for _name in UNARY:
    _define(f"__{_name}__", _name)
for _name in ORDER:
    _define_order(_name)
for _name in ("setitem", "delitem", "next"):
    _define(f"__{_name}__", _name)
for _name, _type in (("hash", int), ("str", str), ("repr", str), ("int", int), ("float", float)):
    _define(f"__{_name}__", _name, _type)


def state(value):
    """What `==` compares of the program's objects: the class, the attributes and the content, recursively."""
    known: dict[int, str] = {}  # by id, what was read: without it, shared parts would take exponential time
    path: list[int] = []  # of the objects that contain this one

    def refer(part: Any) -> list:
        if isinstance(part, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
            return ["object", str(id(part)), None]
        if id(part) in path:  # it contains itself, as nodes of graphs do
            return ["object", "above", len(path) - path.index(id(part))]
        if id(part) not in known:
            path.append(id(part))
            try:
                attributes, items = attributes_of(part), content(part)
                own = id(part) if not attributes and items is None else None  # nothing else tells it from others
                known[id(part)] = digest([codec.encode(each, refer) for each in (attributes, items, own)])
            finally:
                path.pop()
        return ["object", str(id(type(part))), known[id(part)]]

    return json.dumps(refer(value))


def attributes_of(value: Any) -> dict:
    """The attributes of an object, also those in `__slots__`."""
    attributes = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                attributes[name] = getattr(value, name)
    return attributes


def digest(encoded: Any) -> str:
    """Of an encoding, so that equal values have the same: of dicts and sets in any order, of 1 and 1.0."""

    def ordered(data: Any) -> Any:
        if not isinstance(data, list) or not data:
            return data
        tag, *rest = data
        if tag == "float" and (number := float.fromhex(rest[0])).is_integer():
            return codec.encode(int(number))
        if tag in ("dict", "counter"):
            return ["dict", *sorted(([*map(ordered, pair)] for pair in rest), key=json.dumps)]
        if tag in codec.SEQUENCES:
            items = [*map(ordered, rest)]
            return [tag, *(sorted(items, key=json.dumps) if "set" in tag else items)]
        return data

    return hashlib.sha256(json.dumps([ordered(part) for part in encoded]).encode()).hexdigest()


def content(container):
    """What a list, dict, set or deque of any class holds; `None` for other values."""
    base = next((base for base in codec.MUTABLE if isinstance(container, base)), None)
    return dict.copy(container) if base is dict else base and base(base.__iter__(container))
