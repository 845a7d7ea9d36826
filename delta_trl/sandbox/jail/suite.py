"""The two sides of tests that are code: the program, served to the tests, and the tests."""

import ast
import builtins
import functools
import importlib
import random
import sys
import types
from collections.abc import Callable
from typing import Any

from . import program
from .jail import LINK
from .peer import REMOTE_TYPES, Peer, state


MODULE = "tests"


def serve(job: dict) -> int:
    """The program's side: load it when asked, then do what the tests ask."""
    peer = Peer(LINK)
    program.open_streams("")
    module = types.ModuleType("solution")

    def load() -> list:
        module.__file__ = program.FILE_NAME
        sys.modules["solution"] = module
        random.seed(0)
        exec(program.compile_program(job["code"]), module.__dict__)
        return [name for name in vars(module) if not name.startswith("__")]

    peer.served = {"load": load, "name": lambda name: vars(module)[name], "state": state}
    peer.serve()
    return 0


def run(job: dict) -> int:
    """The tests' side. Reports whether each test passed, or why the tests cannot be run."""
    program.open_streams("")
    try:
        setup = compile(job["setup"], "<setup>", "exec")
        units = [compile(text, "<tests>", "exec") for text in job["units"]]
        for text in (job["setup"], *job["units"]):
            check_imports(ast.parse(text))
        if "numpy" in sys.modules:
            compare_no_empty_arrays(sys.modules["numpy"], names_of(setup, *units))
    except Exception as error:  # before the program was looked at: it cannot be the reason
        program.write_result({"unusable": f"{type(error).__name__}: {error}"})
        return 0
    peer = Peer(LINK, guarded_module=MODULE)
    try:
        report: dict[str, Any] = {"passed": run_units(peer, job, setup, units)}
        if not peer.used and all(one is True for one in report["passed"]):
            report = {
                "unusable": "they do not call the program (unittest classes, async tests and fixtures are not run)"
            }
    except UnusableError as error:
        report = {"unusable": str(error)}
    program.write_result(report)
    return 0


class UnusableError(Exception):
    """Tests that no program can pass."""


def compare_no_empty_arrays(numpy: Any, used: set[str]) -> None:
    """To numpy an empty array is close to every number: what is empty on one side is not equal here."""

    def strict(function: Callable) -> Callable:
        @functools.wraps(function)
        def compare(actual, desired, *args, **kwargs):
            actual, desired = numpy.asanyarray(actual), numpy.asanyarray(desired)
            if (actual.size == 0) != (desired.size == 0):
                raise AssertionError("one side is empty")
            return function(actual, desired, *args, **kwargs)

        return compare

    functions = [(numpy, "allclose"), (numpy, "isclose")]
    if any("testing" in name for name in used):  # takes long to import
        functions += [(numpy.testing, "assert_allclose"), (numpy.testing, "assert_array_equal")]
    for owner, name in functions:
        setattr(owner, name, strict(getattr(owner, name)))


def check_imports(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            if name != "solution":
                importlib.import_module(name)


def run_units(peer: Peer, job: dict, setup: types.CodeType, units: list[types.CodeType]) -> list:
    """For each test True, or the name of the exception that it failed with."""
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    results: list = []
    try:
        names = peer.request("load")
        injected = inject(peer, names, module, job, [setup, *units])
        exec(setup, module.__dict__)
        for name, value in injected.items():  # `from math import *` may hold a function of the tested one's name
            if getattr(vars(module).get(name), "__module__", None) not in (None, MODULE):
                vars(module)[name] = value
    except BaseException as error:
        return [describe(error)]
    for unit in units:
        try:
            exec(unit, module.__dict__)
            if job["entry_point"]:
                check = vars(module).get("check")
                if not callable(check) or type(check) in REMOTE_TYPES:
                    raise UnusableError("an entry point is named, but no function `check` is defined")
                check(entry_point(injected, job["entry_point"]))
            for name, value in list(vars(module).items()):
                if name.startswith("test_") and isinstance(value, types.FunctionType):
                    delattr(module, name)
                    value()
            results.append(True)
        except UnusableError:
            raise
        except BaseException as error:
            results.append(describe(error))
            if job["stop_at_failure"]:
                break
    return results


def describe(error: BaseException) -> str:
    return type(error).__name__


def entry_point(names: dict, name: str) -> Any:
    """What the tests check: a function, or as `Solution().f` a method of a new object."""
    owner, _, method = name.rpartition("().")
    return getattr(names[owner](), method) if owner else names[name]


def inject(peer: Peer, names: list, module: types.ModuleType, job: dict, codes: list) -> dict[str, Any]:
    """
    Give the tests the program's names that they use, as `solution` and as their own, which are returned.

    A builtin that the program defines anew stays the tests' own (a program's `all` or `abs` would decide them), unless
    it is what they test: the entry point, or the only name of the program that they use.
    """
    used = names_of(*codes)
    own = [name for name in names if name in used and not hasattr(builtins, name)]
    if job["entry_point"]:
        own.append(job["entry_point"].partition("().")[0])
    elif not own:
        own = [name for name in names if name in used and name in job["called"]]
    solution = types.ModuleType("solution")

    def lookup(name: str) -> Any:
        if name == "__all__":  # what the tests have imported or defined by then stays theirs
            return [name for name in names if not hasattr(builtins, name) and name not in vars(module)]
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return peer.request("name", name)
        except KeyError:
            raise AttributeError(name) from None

    vars(solution)["__getattr__"] = lookup
    sys.modules["solution"] = solution
    injected = {name: peer.request("name", name) for name in own}
    vars(module).update(injected)
    return injected


def names_of(*codes: types.CodeType) -> set[str]:
    used: set[str] = set()
    for code in codes:
        inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
        used.update(code.co_names, names_of(*inner))
    return used
