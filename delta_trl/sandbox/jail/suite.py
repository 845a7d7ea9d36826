"""Runs tests that are code: `run` is the tests' process, `serve` that of the program, which the tests ask."""

import ast
import builtins
import contextlib
import functools
import inspect
import io
import os
import re
import symtable
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..calls import DEFAULT_MODULES, compile_program, load
from . import handles, program, pytest_names
from .confinement import RESULT


MODULE = "tests"  # names of the modules of the tests and of the program
SOLUTION = "solution"
TESTS_FILE = "/tests/test_solution.py"  # not where the program can write: tests put their folder first on the path
NOT_COMPILED = re.compile(r"\(solution\.py, line (\d+)\)$")  # in the text of a SyntaxError of the program
NAN = re.compile(r"(?<![a-z])(?:is_?)?nan", re.IGNORECASE)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CHECK = "check"  # what HumanEval's tests call their function
# `patch("builtins.input")`: what the tests replace in their process, the program does not see
REPLACED = re.compile(r"\b(?:builtins[^\w\n]{1,4}(?:input|print|open)\b|sys[^\w\n]{1,4}stdin)")
ASSERTS = re.compile("assert|raises")  # in the names of what may fail a test
PYTEST_NAME = re.compile(r"pytest\.(?:mark\.)?\w+")
# Names that tests use without importing them, since many programs import them. The tests get their own.
HELPERS: dict[str, Any] = {}
exec(
    f"""
import {", ".join(DEFAULT_MODULES)}
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from math import inf, isclose, nan
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple, Union
""",
    HELPERS,
)


def serve(job: dict) -> int:
    """The program's side: load it when asked, then do what the tests ask."""
    program.open_streams("")
    printed = io.BytesIO()
    sys.stdout = io.TextIOWrapper(printed, "utf-8", write_through=True)
    handles.serve(lambda: load(compile_program(job["code"])), printed)
    return 0


def run(job: dict) -> int:
    """
    The tests' side. Reports how many tests there are and, for each so far, True or the name of the exception that it
    failed with; or why the tests cannot be used, which does not depend on the program.
    """
    program.open_streams("")
    compare_empty_arrays()
    sys.modules["pytest"] = pytest_names.MODULE
    texts = [job["setup"], *job["units"]]
    try:
        source = Source(texts, job["entry_point"])
    except Exception as error:  # the program is not loaded yet, so it is not the reason
        program.write_line({"unusable": str(error) or type(error).__name__})
        return 0
    os.chdir("/")
    results: list = []
    report(passed=results, total=source.total)
    tested = handles.Program(nan_is_named=NAN.search("\n".join(texts)) is not None)
    for result in source.results(functools.partial(tested.ask, "load")):
        results.append(result)
        report(passed=results, total=source.total)
        if job["stop_at_failure"] and result is not True:
            break
    return 0


def report(**content: Any) -> None:
    """Replace the report. If the process is killed, the last report counts."""
    os.ftruncate(RESULT, 0)
    os.lseek(RESULT, 0, os.SEEK_SET)
    program.write_line(content)


def compare_empty_arrays() -> None:
    """Have numpy find an empty array close to an empty one only: to every number, otherwise."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return
    isclose = numpy.isclose

    @functools.wraps(isclose)
    def strict(a, b, *args, **kwargs):
        if (numpy.asanyarray(a).size == 0) != (numpy.asanyarray(b).size == 0):
            raise AssertionError("one side is empty")
        return isclose(a, b, *args, **kwargs)

    numpy.isclose = isclose.__wrapped__.__globals__["isclose"] = strict  # the latter for `allclose`


class UnusableError(Exception):
    """Tests that no program can pass, or that a wrong program could pass."""


class Unit(NamedTuple):
    """A text of tests, and the functions of it to run, each of which is a test. `None` stands for the text itself."""

    module: ast.Module
    functions: list[str | None]


class Source:
    """
    Tests that are code, and where each of their global names comes from. Only the tests decide this: a program that
    also defines `isclose`, `Counter` or `all` does not replace theirs.

    `own` are the program's names; if the tests define one of them, theirs is used from there on. `others` is what the
    tests use without defining it: Python's, star imports, what judges import.

    Args:
        texts (`list[str]`): The tests' source; the first text is the setup.
        entry_point (`str | None`): What `check` is called with: `f`, or `Solution().f`.

    Raises:
        SyntaxError, ImportError: If they are not Python, or import what is not there.
        UnusableError: If it is not clear which names are the program's, or a test would not be run.
    """

    def __init__(self, texts: list[str], entry_point: str | None):
        cleaned = Cleaned()
        modules = [cleaned.visit(ast.parse(text)) for text in texts]
        nodes = [node for module in modules for node in ast.walk(module)]
        sources = list(map(ast.unparse, modules))
        if replaced := REPLACED.search("\n".join(sources)):
            raise UnusableError(f"they replace {replaced[0]}, which the program's process does not see")
        read, bound = global_names(sources)
        called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        self.setup, *self.units = [Unit(module, functions_to_run(module, read, entry_point)) for module in modules]
        self.entry_point = entry_point
        helpers = helpers_beside(called)
        pythons = vars(builtins) | {"type": handles.class_of, "__file__": TESTS_FILE}
        self.others = helpers | pythons | cleaned.starred
        undefined = read - bound - self.others.keys()
        if entry_point:
            self.own = {entry_point.partition("().")[0]} - bound
            if any(CHECK in unit.functions for unit in self.units):  # it gets the function: a `sum` in it is Python's
                self.own -= self.others.keys()
        elif any(isinstance(node, ast.ImportFrom) and node.module == SOLUTION for node in nodes):
            self.own = set()
        else:
            self.own = undefined or first_of(called - bound, [helpers, cleaned.starred, pythons]) or read & bound
        attributes = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)]
        of_pytest = set(filter(PYTEST_NAME.fullmatch, attributes))
        missing = (undefined - self.own) | of_pytest.difference(pytest_names.OFFERED)
        if missing:
            raise UnusableError(f"they neither define nor import {sorted(missing)}")
        for name in self.own & self.others.keys():
            del self.others[name]

    @property
    def total(self) -> int:
        return sum(len(unit.functions) for unit in self.units)

    def results(self, load: Callable) -> Iterator[bool | str]:
        """Run the tests on a program that `load` gives. For each, True or the name of the exception it failed with."""
        module = types.ModuleType(MODULE)
        vars(module)["__builtins__"] = self.others
        sys.modules[MODULE] = module

        def set_up() -> None:
            sys.modules[SOLUTION] = solution = load()
            for name in self.own:
                with contextlib.suppress(AttributeError):
                    setattr(module, name, getattr(solution, name))
            run_text(self.setup.module)

        def run_text(text: ast.Module) -> None:
            exec(compile(ast.fix_missing_locations(text), TESTS_FILE, "exec"), vars(module))

        def call(name: str) -> None:
            arguments = []
            if name == CHECK and self.entry_point:
                arguments.append(object_to_check(self.entry_point))
            pytest_names.run_test(getattr(module, name), *arguments)

        failure = outcome(set_up)
        for unit in self.units:
            result = outcome(run_text, unit.module) if failure is True else failure
            for name in unit.functions:
                yield outcome(call, name) if name and result is True else result


def outcome(action: Callable, *args: Any) -> bool | str:
    try:
        action(*args)
    except BaseException as error:
        name = type(error).__name__
        line = NOT_COMPILED.search(str(error)) if isinstance(error, SyntaxError) else None
        return f"{name} in line {line[1]}" if line else name
    return True


def object_to_check(entry_point: str) -> Any:
    """A function of the program, or as `Solution().f` a method of a new object."""
    owner, _, name = entry_point.rpartition("().")
    solution = sys.modules[SOLUTION]
    return getattr(getattr(solution, owner)() if owner else solution, name)


def global_names(texts: Iterable[str]) -> tuple[set[str], set[str]]:
    """The global names that texts read, and those that they define or import."""
    read = set()
    bound = set()
    tables = [symtable.symtable(text, TESTS_FILE, "exec") for text in texts]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in filter(symtable.Symbol.is_global, table.get_symbols()):
            if symbol.is_referenced():
                read.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_imported():
                bound.add(symbol.get_name())
    return read, bound


def first_of(called: set[str], layers: list[dict[str, Any]]) -> set[str]:
    """
    The program's name if the tests have others for all that they use: a function may be called like one that they
    need not define. Then it is the first of these layers that decides of which they call something.
    """
    for layer in layers:
        tested = called & layer.keys()
        if len(tested) > 1:
            raise UnusableError(f"they may test any of {sorted(tested)}: name it as 'entry_point'")
        if tested:
            return tested
    return set()


def helpers_beside(called: set[str]) -> dict[str, Any]:
    """The helpers, without modules that have the name of what the tests call."""
    helpers = HELPERS | dict.fromkeys(("numpy", "np"), sys.modules.get("numpy"))
    return {name: value for name, value in helpers.items() if name not in called or not inspect.ismodule(value)}


class Cleaned(ast.NodeTransformer):
    """
    Takes out star imports, because their names are among the tests' others or the program's, and what stands under
    `if __name__ == "__main__":`, because the module of the tests has another name. Raises ImportError if something is
    not there that the tests import by a star or at their top.
    """

    def __init__(self) -> None:
        self.starred: dict[str, Any] = {}  # the names that come by star imports

    def visit_Module(self, node: ast.Module) -> ast.AST:
        for statement in node.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                import_of_tests(statement, {})
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        if node.names[0].name != "*":
            return node
        import_of_tests(node, self.starred)
        return ast.Pass()

    def visit_If(self, node: ast.If) -> ast.AST:
        if "__main__" not in ast.unparse(node.test):
            return self.generic_visit(node)
        if any(map(asserts, ast.walk(node))):
            raise UnusableError("what they assert under `__main__` would not be run")
        return ast.Pass()


def asserts(node: ast.AST) -> bool:
    """Whether a node of the syntax is an assert, or the name of one, such as numpy's `assert_allclose`."""
    name = getattr(node, "attr", getattr(node, "id", ""))
    return isinstance(node, ast.Assert) or ASSERTS.search(name) is not None


def import_of_tests(node: ast.stmt, names: dict[str, Any]) -> None:
    """Import something, unless it is the program."""
    text = ast.unparse(node)
    if SOLUTION not in text:
        exec(text, names)


def functions_to_run(module: ast.Module, read: set[str], entry_point: str | None) -> list[str | None]:
    """
    Functions `test…` whose parameters pytest's marks give, and `check` if there is an entry point; `None` without any.

    Raises:
        UnusableError: For asserts in other functions and classes that the tests do not use: nobody would run them.
    """
    names: list[str | None] = []
    for statement in module.body:
        if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(statement, FUNCTIONS) and is_test(statement, entry_point):
            names.append(statement.name)
        # unittest's are methods
        elif statement.name not in read and ASSERTS.search(ast.unparse(statement)):
            raise UnusableError(f"{statement.name} would not be run: tests are functions `test…` without parameters")
    return names or [None]


def is_test(function: ast.FunctionDef | ast.AsyncFunctionDef, entry_point: str | None) -> bool:
    """Whether a function is `check` and has an entry point, or is `test…` and needs nothing, or has pytest's mark."""
    if function.name == CHECK:
        return entry_point is not None
    marks = "".join(map(ast.unparse, function.decorator_list))
    return function.name.startswith("test") and ("parametrize" in marks or not ast.unparse(function.args))
