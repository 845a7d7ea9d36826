"""
Loads an untrusted program and calls its functions.

This source also runs on a remote server, so it imports nothing from this package.
"""

import builtins
import json
import random
import sys
import types
from typing import Any


FILE_NAME = "/tmp/solution.py"
RECURSION_LIMIT = 50_000  # of LeetCode's judge
# LeetCode's judge imports these before a solution, in LiveCodeBench's order (the modules last).
DEFAULT_MODULES = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json"
).split()
DEFAULT_NAMES: dict[str, Any] = {}
exec("".join(f"from {name} import *\n" for name in (*DEFAULT_MODULES, "typing")), DEFAULT_NAMES)
exec(f"import {', '.join(DEFAULT_MODULES)}", DEFAULT_NAMES)
del DEFAULT_NAMES["__builtins__"]


def compile_program(code: str) -> types.CodeType:
    return compile(code.removeprefix("\ufeff"), FILE_NAME, "exec", dont_inherit=True)


def new_module(name: str) -> types.ModuleType:
    """An empty module for a program, as a fresh interpreter would have it."""
    module = types.ModuleType(name)
    vars(module).update(__file__=FILE_NAME, __builtins__=builtins)
    sys.modules[name] = module
    random.seed(0)  # every child of a zygote would draw the same numbers anyway
    return module


def load(program: types.CodeType) -> types.ModuleType:
    """The program as a module, which holds what the program defines and imports, and nothing else."""
    module = new_module("solution")
    # Default imports go among the builtins, outside the module's names: `find` must not take one for the program's.
    vars(module)["__builtins__"] = DEFAULT_NAMES | vars(builtins)
    sys.setrecursionlimit(RECURSION_LIMIT)
    exec(program, module.__dict__)
    return module


def call(program: types.CodeType, name: str, arguments: list) -> str:
    """
    The value of one call, as JSON: a tuple is a list, and keys are strings. Of a function of the program, or a method
    of its class Solution.

    Raises:
        TypeError, ValueError, RecursionError: For a value that JSON does not have.
    """
    return json.dumps(find(load(program), name)(*arguments), default=of_numpy, separators=(",", ":"))


def of_numpy(value: Any) -> Any:
    """A number or an array of numpy, as plain data."""
    if type(value).__module__ != "numpy":
        raise TypeError(f"a {type(value).__name__} is not plain data")
    return value.tolist()


def find(module: types.ModuleType, name: str) -> Any:
    """The object that a program has under a name: from its module, else from its class Solution, else by an import."""
    value = getattr(module, name, None)
    is_own = getattr(value, "__module__", None) == module.__name__
    solution = getattr(module, "Solution", None)
    if solution is None or is_own:
        return getattr(module, name)
    if value is None or hasattr(solution, name):
        return getattr(solution(), name)
    return value
