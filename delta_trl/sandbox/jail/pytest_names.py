"""The names of pytest that tests may use. pytest itself would make every program slower to start."""

import contextlib
import functools
import inspect
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import codec


OFFERED = ("pytest.raises", "pytest.approx", "pytest.mark", "pytest.mark.parametrize", "pytest.mark.asyncio")


def run_test(test: Callable, *args: Any, **kwargs: Any) -> None:
    """
    Call a test, and wait for its end if it is a coroutine.

    Raises:
        TypeError: If it returns something. A generator has not run, and a truth is no assert.
    """
    result = test(*args, **kwargs)
    if inspect.iscoroutine(result):
        import asyncio  # here, because few programs need it

        result = asyncio.run(result)
    if result is not None:
        raise TypeError


def parametrize(names: str | list[str], cases: Iterable, **options: Any) -> Callable:
    """Makes one test of all cases."""
    keys = names
    rows = list(cases)
    if isinstance(names, str):
        keys = re.findall(r"\w+", names)
        if len(keys) == 1:  # then a case is the value itself
            rows = [[case] for case in rows]

    def decorate(test: Callable) -> Callable:
        def run_all(**fixed: Any) -> None:
            for row in rows:
                arguments = dict(zip(keys, row, strict=True))
                run_test(test, **fixed, **arguments)

        return run_all

    return decorate


@contextlib.contextmanager
def catch(expected: Any, match: str) -> Iterator[types.SimpleNamespace]:
    caught = types.SimpleNamespace(value=None)
    try:
        yield caught
    except expected as error:
        caught.value = error
        caught.type = type(error)
    assert caught.value is not None, "nothing was raised"
    assert re.search(match, str(caught.value)), "the exception has another text"


def raises(expected: Any, *call: Any, match: str = "", **kwargs: Any) -> Any:
    """A context in which an exception must be raised; or, with a function to call, that exception."""
    context = catch(expected, match)
    if not call:
        return context
    function, *args = call
    with context as caught:
        function(*args, **kwargs)
    return caught


class Approx:
    """Equals real numbers near the expected one, and lists, tuples, arrays and dicts of such numbers."""

    __array_ufunc__ = None  # numpy leaves the comparison of its arrays to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None):
        if rel is None:
            rel = 1e-6 if abs is None else 0.0
        if abs is None:
            abs = 1e-12
        self.expected = codec.without_arrays(expected)
        self.is_near_number = functools.partial(math.isclose, rel_tol=rel, abs_tol=abs)

    def __eq__(self, actual: Any) -> bool:
        return self._is_near(codec.without_arrays(actual), self.expected)

    def _is_near(self, actual: Any, expected: Any) -> bool:
        match actual, expected:
            case int() | float(), int() | float():
                return self.is_near_number(actual, expected)
            case list() | tuple(), list() | tuple():
                return len(actual) == len(expected) and all(map(self._is_near, actual, expected))
            case dict(), dict():
                return actual.keys() == expected.keys() and all(
                    self._is_near(actual[key], value) for key, value in expected.items()
                )
        return actual == expected


MODULE = types.ModuleType("pytest")
mark = types.SimpleNamespace(parametrize=parametrize, asyncio=lambda test: test)
vars(MODULE).update(raises=raises, approx=Approx, mark=mark)
