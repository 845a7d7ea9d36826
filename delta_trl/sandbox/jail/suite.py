"""The two sides of tests that are code: the program, served to the tests, and the tests."""

import ast
import builtins
import functools
import importlib
import io
import random
import symtable
import sys
import types
from collections.abc import Callable
from typing import Any

from ..calls import FILE_NAME, compile_program
from . import program
from .jail import LINK
from .peer import REMOTE_TYPES, Peer, state


MODULE, SOLUTION = "tests", "solution"  # as the tests know themselves, and the program


def serve(job: dict) -> int:
    """The program's side: load it when asked, then do what the tests ask."""
    program.open_streams("")
    printed = io.BytesIO()
    sys.stdout = io.TextIOWrapper(printed, "utf-8", write_through=True)
    peer = Peer(LINK, printed=printed)
    builtins.input = lambda prompt="": peer.request("input", str(prompt))
    module = types.ModuleType("solution")

    def load() -> list:
        module.__file__ = FILE_NAME
        sys.modules["solution"] = module
        random.seed(0)
        exec(compile_program(job["code"]), module.__dict__)
        return [name for name in vars(module) if not name.startswith("__")]

    def named(name: str) -> Any:
        value = vars(module)[name]
        # `conv = list` is a function of the program's, and the tests have to call it here
        return functools.partial(value) if isinstance(value, type) and value.__module__ == "builtins" else value

    peer.served = {"load": load, "name": named, "state": state}
    peer.serve()
    return 0


def run(job: dict) -> int:
    """The tests' side. Reports whether each test passed, or why the tests cannot be run."""
    program.open_streams("")
    sources = [job["setup"], *job["units"]]
    try:
        sources[0] = forgotten_imports(sources) + sources[0]
        names = names_of_the_program(sources, job["entry_point"])
        setup, *units = [compile(text, "<tests>", "exec") for text in sources]
        if "numpy" in sys.modules:
            compare_no_empty_arrays(sys.modules["numpy"], any("testing" in text for text in sources))
    except Exception as error:  # before the program was looked at: it cannot be the reason
        program.write_result({"unusable": f"{type(error).__name__}: {error}"})
        return 0
    peer = Peer(LINK, guarded_module=MODULE)
    peer.served = {"input": lambda prompt: input(prompt if isinstance(prompt, str) else "")}
    try:
        report: dict[str, Any] = {"passed": run_units(peer, job, names, setup, units)}
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


def compare_no_empty_arrays(numpy: Any, testing: bool) -> None:
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
    if testing:  # takes long to import
        functions += [(numpy.testing, "assert_allclose"), (numpy.testing, "assert_array_equal")]
    for owner, name in functions:
        setattr(owner, name, strict(getattr(owner, name)))


def names_of_the_program(sources: list[str], entry_point: str | None) -> set[str]:
    """
    The global names of the tests that only the program can give: neither the tests nor Python define them.

    The tests alone decide about this. A program that defines `isclose`, `Counter` or `all` as well replaces nothing of
    theirs. Where every name is defined and no entry point is given, the tested function has the name of a builtin or
    of something that a star import gave: then it is the only one of these that the tests call.

    Args:
        sources (`list[str]`): The tests' texts.
        entry_point (`str`, *optional*): What they check, if they say so.

    Raises:
        ImportError: If they import what is not installed.
        UnusableError: If nobody can tell which of the names is the program's.
    """
    trees = [ast.parse(text) for text in sources]
    read, bound = global_names(sources)
    starred = imported_by_star(trees)
    names = {name for name in read - bound - starred - set(dir(builtins)) if not name.startswith("__")}
    if names or entry_point or bound_by_solution(trees):
        return names
    called = {node.func.id for tree in trees for node in ast.walk(tree)
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)} - bound  # fmt: skip
    candidates = called & starred or called
    if len(candidates) > 1:
        raise UnusableError(f"any of {sorted(candidates)} may be what they test: name it as 'entry_point'")
    return candidates


def forgotten_imports(sources: list[str]) -> str:
    """
    Imports of modules of the standard library that the tests use (as in `math.isclose`) without importing them. The
    program often does, but what it calls `math` may be anything.
    """
    nodes = [node for text in sources for node in ast.walk(ast.parse(text))]
    owners = [node.value for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    places = set(map(id, owners))
    others = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in places}
    read, bound = global_names(sources)
    missing = ({owner.id for owner in owners} - others) & (read - bound) & sys.stdlib_module_names
    return "".join(f"import {name}\n" for name in sorted(missing))


def global_names(sources: list[str]) -> tuple[set[str], set[str]]:
    """The global names that code reads, and those that it defines or imports."""
    read, bound = set(), set()
    tables = [symtable.symtable(text, "<tests>", "exec") for text in sources]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() == "module" or symbol.is_global():
                if symbol.is_referenced():
                    read.add(symbol.get_name())
                if symbol.is_assigned() or symbol.is_imported():
                    bound.add(symbol.get_name())
    return read, bound


def imported_by_star(trees: list[ast.Module]) -> set[str]:
    """Import what the tests import, so that what is missing is known now; the names of their star imports."""
    starred: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            if name != SOLUTION:
                module = importlib.import_module(name)
                if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                    public = [one for one in vars(module) if not one.startswith("_")]
                    starred.update(getattr(module, "__all__", public))
    return starred


def bound_by_solution(trees: list[ast.Module]) -> bool:
    """Whether the tests import from the program by themselves."""
    return any(
        (isinstance(node, ast.ImportFrom) and node.module == SOLUTION)
        or (isinstance(node, ast.Import) and any(alias.name == SOLUTION for alias in node.names))
        for tree in trees
        for node in ast.walk(tree)
    )


def run_units(peer: Peer, job: dict, names: set[str], setup: types.CodeType, units: list[types.CodeType]) -> list:
    """For each test True, or the name of the exception that it failed with."""
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    results: list = []
    try:
        given = {name: peer.request("name", name) for name in peer.request("load") if name in names}
        sys.modules[SOLUTION] = solution(peer, sorted(given))
        vars(module).update(given)
        exec(setup, module.__dict__)
        vars(module).update(given)  # a star import may have hidden the tested function
    except BaseException as error:
        return [describe(error)]
    for unit in units:
        try:
            exec(unit, module.__dict__)
            if job["entry_point"]:
                check = vars(module).get("check")
                if not callable(check) or type(check) in REMOTE_TYPES:
                    raise UnusableError("an entry point is named, but no function `check` is defined")
                check(entry_point(peer, job["entry_point"]))
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


def entry_point(peer: Peer, name: str) -> Any:
    """What the tests check: a function, or as `Solution().f` a method of a new object."""
    owner, _, method = name.rpartition("().")
    return getattr(peer.request("name", owner)(), method) if owner else peer.request("name", name)


def solution(peer: Peer, public: list[str]) -> types.ModuleType:
    """The program as a module that the tests import; `public` is what a star import takes from it."""
    module = types.ModuleType(SOLUTION)

    def lookup(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return peer.request("name", name)
        except KeyError:
            raise AttributeError(name) from None

    vars(module).update(__getattr__=lookup, __all__=public)
    return module
