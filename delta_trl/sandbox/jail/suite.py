"""Runs tests that are code: `run` is the tests' process, `serve` that of the program, which the tests ask."""

import ast
import builtins
import contextlib
import functools
import importlib
import io
import os
import re
import symtable
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

from .. import codec
from ..calls import DEFAULT_MODULES, compile_program, load
from . import handles, program
from .jail import LINK


MODULE, SOLUTION = "tests", "solution"  # names of the modules of the tests and of the program
TESTS_FILE = "/tmp/test_solution.py"
CHECK = "check"  # what HumanEval's tests call their function
# What tests use without importing it, since many programs import it. The tests get their own.
HELPER_MODULES = {*DEFAULT_MODULES.split(), "decimal", "fractions", "numpy", "os", "time", "typing"}
HELPERS = {
    "collections": ["ChainMap", "Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"],
    "copy": ["deepcopy"],
    "decimal": ["Decimal"],
    "fractions": ["Fraction"],
    "math": ["inf", "isclose", "nan"],
    "typing": ["Any", "Callable", "Dict", "Iterable", "List", "Optional", "Set", "Tuple", "Union"],
}


def serve(job: dict) -> int:
    """The program's side: load it when asked, then do what the tests ask."""
    program.open_streams("")
    printed = io.BytesIO()
    sys.stdout = io.TextIOWrapper(printed, "utf-8", write_through=True)
    module = types.ModuleType(SOLUTION)

    def load_program() -> list:
        nonlocal module
        module = load(compile_program(job["code"]))
        return [name for name in vars(module) if not name.startswith("__")]

    handles.serve(LINK, {"load": load_program, "name": lambda name: vars(module)[name]}, printed)
    return 0


def run(job: dict) -> int:
    """
    The tests' side. Reports how many tests there are and, for each so far, True or the name of the exception that it
    failed with; or why the tests cannot be used, which does not depend on the program.
    """
    program.open_streams("")
    sources = [job["setup"], *job["units"]]
    try:
        code = [compile(text, "<tests>", "exec") for text in sources]
        names = Names.of(sources, job["entry_point"])
        refuse_empty_arrays(any("testing" in text for text in sources))
    except Exception as error:  # the program is not loaded yet, so it is not the reason
        program.write_result({"unusable": str(error) or type(error).__name__})
        return 0
    sys.path_hooks.insert(0, NotHere)
    sys.path_importer_cache.clear()
    if job["without_program"]:
        load, lookup = (lambda: names.program), (lambda name: Nothing())
    else:
        asked = handles.Program(LINK)
        load, lookup = functools.partial(asked.ask, "load"), functools.partial(asked.ask, "name")
    results: list = []
    total = sum(len(functions) or 1 for functions in names.tests[1:])
    for result in run_tests(load, lookup, job["entry_point"], names, code):
        results.append(result)
        if job["without_program"] and Nothing.refused:
            program.rewrite_result({"unusable": Nothing.refused[0]})
            return 0
        program.rewrite_result({"passed": results, "total": total})
        if job["stop_at_failure"] and result is not True:
            break
    return 0


class NotHere:
    """Finds no module where the program can write: tests may put their own folder first on the path."""

    def __init__(self, path: str):
        if not f"{os.path.realpath(path)}/".startswith(f"{os.path.dirname(TESTS_FILE)}/"):
            raise ImportError

    def find_spec(self, name: str, target: Any = None) -> None:
        return None


class UnusableError(Exception):
    """Tests that no program can pass, or that a wrong program could pass."""


class Nothing:
    """
    What the tests get without a program. It can be called and has every attribute, and equals nothing.

    `refused` says why the tests cannot be used, where they hand over what no program gets.
    """

    refused: ClassVar[list[str]] = []
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args: Any, **kwargs: Any) -> "Nothing":
        try:
            codec.encode([*args, *kwargs.values()], lambda one: type(one) is Nothing or handles.refer(one))
        except handles.NotForProgramsError as error:
            self.refused.append(str(error))
        except RecursionError:
            pass
        return Nothing()

    def __eq__(self, other: object) -> bool:
        return type(other) is Nothing

    def __bool__(self) -> bool:
        raise TypeError("nothing is neither true nor false")


def refuse_empty_arrays(testing: bool) -> None:
    """Make an empty array differ from every other. In numpy it is close to every number."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return

    def strict(function: Callable) -> Callable:
        @functools.wraps(function)
        def compare(*args, **kwargs):
            sizes = [size(one) for one in [*args, *kwargs.values()][:2]]
            if 0 in sizes and any(sizes):
                raise AssertionError("one side is empty")
            return function(*args, **kwargs)

        return compare

    def size(value: Any) -> int:
        try:
            return numpy.asanyarray(value).size
        except ValueError:  # lists of several lengths
            return len(value)

    functions = [(numpy, name) for name in ("allclose", "isclose", "array_equiv")]
    if testing:  # takes long to import
        module = importlib.import_module("numpy.testing")
        functions += [(module, name) for name in dir(module) if re.match("assert.*(equal|close|less)", name)]
    for owner, name in functions:
        function = getattr(owner, name)
        setattr(owner, name, strict(function))
        if owner is not numpy:  # where it calls itself, for the items of lists and dicts
            function.__globals__[name] = getattr(owner, name)


class Names(NamedTuple):
    """
    Where each global name of the tests comes from. Only the tests decide this: a program that also defines `isclose`,
    `Counter` or `all` does not replace theirs.

    Args:
        helpers (`dict[str, Any]`): What the tests use without importing it.
        program (`set[str]`): The program's names. If the tests define one of them, theirs is used from there on.
        hidden (`set[str]`):
            Of these, the one that a star import, a helper or Python provides as well, but that is what they test.
        bound (`set[str]`): What the tests define or import.
        tests (`list[list[str]]`): Of each text, the functions to be run: pytest-style tests, or `check`.
    """

    helpers: dict[str, Any]
    program: set[str]
    hidden: set[str]
    bound: set[str]
    tests: list[list[str]]

    @classmethod
    def of(cls, sources: list[str], entry_point: str | None) -> "Names":
        """
        Determine them from the tests' source.

        Args:
            sources (`list[str]`): The tests' texts.
            entry_point (`str`, *optional*): The name that they check, if it is given.

        Raises:
            ImportError: If they import what is not installed.
            UnusableError: If it is not clear which names are the program's, or a test would not be run.
        """
        modules = [without_main(ast.parse(text)) for text in sources]
        nodes = [node for module in modules for node in ast.walk(module)]
        read, bound = global_names(sources)
        read = {name for name in read if not name.startswith("__")}
        starred = imported_by_star(nodes)
        called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        python = set(dir(builtins))
        mentioned = {node.id for node in nodes if isinstance(node, ast.Name)}
        tests = [functions_to_run(module, mentioned, entry_point is not None) for module in modules]
        helpers = import_helpers((read - bound - starred) - python, called)
        free = read - bound - starred - python - set(helpers)
        if entry_point:
            name = entry_point.partition("().")[0]
            if others := sorted(free - {name}):
                raise UnusableError(f"define {others} in 'test_setup_code': only the entry point {entry_point} is "
                                    "taken from the program")  # fmt: skip
            # `check` gets the function, so that a `sum` in it is Python's
            own = set() if any(CHECK in functions for functions in tests) else {name} - bound
            return cls(helpers, free | own, own, bound, tests)
        imported = imported_from_solution(nodes)
        if imported and "*" not in imported:
            if free:
                raise UnusableError(f"they import from {SOLUTION}, but neither define nor import {sorted(free)}")
            return cls(helpers, set(), set(), bound, tests)
        hidden: set[str] = set()
        if not free:
            candidates = called - bound
            hidden = candidates & starred or candidates & set(helpers) or candidates & python
            if len(hidden) > 1:
                raise UnusableError(f"they may test any of {sorted(hidden)}: name it as 'entry_point'")
        own = free or hidden or read & bound  # `total = total([1, 2])`
        return cls({name: value for name, value in helpers.items() if name not in hidden}, own, hidden, bound, tests)


def without_main(module: ast.Module) -> ast.Module:
    """Without `if __name__ == "__main__":`, which does not hold here."""
    kept = [one for one in module.body if not isinstance(one, ast.If) or "__main__" not in ast.unparse(one.test)]
    if any(asserts(one) for one in module.body if one not in kept):
        raise UnusableError("what they assert under `__main__` would not be run")
    return ast.Module(kept, [])


def import_helpers(names: set[str], called: set[str]) -> dict[str, Any]:
    """Import those of the names that are helpers. A name that the tests call is no module."""
    imports = {name: f"import {name}" for name in HELPER_MODULES - called} | {"np": "import numpy as np"}
    imports |= {name: f"from {module} import {name}" for module, public in HELPERS.items() for name in public}
    helpers: dict[str, Any] = {}
    exec("\n".join(imports[name] for name in sorted(names & set(imports))), {}, helpers)
    return helpers


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


def imported_by_star(nodes: list[ast.AST]) -> set[str]:
    """Import what the tests import, so that a missing module raises now; return the names of their star imports."""
    tried = {id(node) for one in nodes if isinstance(one, ast.Try) for node in ast.walk(one)}
    starred: set[str] = set()
    for node in nodes:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or imports_solution(node):
            continue
        with contextlib.suppress(*[ImportError] * (id(node) in tried)):  # in a `try`: they handle it
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif node.module and not node.level:
                module = importlib.import_module(node.module)
                if node.names[0].name == "*":
                    public = [name for name in vars(module) if not name.startswith("_")]
                    starred.update(getattr(module, "__all__", public))
    return starred


def imports_solution(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == SOLUTION
    return isinstance(node, ast.Import) and any(alias.name == SOLUTION for alias in node.names)


def imported_from_solution(nodes: list[ast.AST]) -> set[str]:
    """What the tests import from the program: names, "*", or "solution" for the module."""
    found = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) and imports_solution(node)]
    return {SOLUTION if isinstance(node, ast.Import) else alias.name for node in found for alias in node.names}


def functions_to_run(module: ast.Module, mentioned: set[str], has_entry_point: bool) -> list[str]:
    """
    Pytest-style tests, and `check` if there is an entry point.

    Raises:
        UnusableError: For tests that nobody runs, which any program would pass.
    """
    found: dict[str, None] = {}
    for one in definitions([module]):
        is_function = isinstance(one, ast.FunctionDef) and not has_parameters(one)
        if (is_function and one.name.startswith("test")) or (one.name == CHECK and has_entry_point):
            found[one.name] = None
        elif one.name not in mentioned and (re.match("test|setup_|teardown_", one.name) or asserts(one)):
            raise UnusableError(f"{one.name} would not be run: tests are functions without parameters")
    return list(found)


def definitions(nodes: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes of modules, without those in other functions and classes."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
        elif isinstance(node, (ast.Module, ast.stmt, ast.ExceptHandler)):
            yield from definitions(ast.iter_child_nodes(node))


def asserts(node: ast.AST) -> bool:
    """Whether it has an assert, or a method such as unittest's `assertEqual`."""
    return any(
        isinstance(one, ast.Assert) or (isinstance(one, ast.Attribute) and one.attr.startswith("assert"))
        for one in ast.walk(node)
    )


def has_parameters(function: ast.FunctionDef) -> bool:
    """Whether it cannot be called without arguments."""
    given = function.args
    return len(given.posonlyargs + given.args) > len(given.defaults) or None in given.kw_defaults


def run_tests(
    load: Callable, lookup: Callable, entry_point: str | None, names: Names, code: list[types.CodeType]
) -> Iterator[bool | str]:
    """
    Run the tests on a program, of which `load` gives the names, and `lookup` what has a name. For each test, True or
    the name of the exception that it failed with. The functions of a text are a test each, a text without is one.
    """
    module = types.ModuleType(MODULE)
    module.__file__ = TESTS_FILE
    sys.modules[MODULE] = module

    def set_up() -> None:
        given = {name: lookup(name) for name in load() if name in names.program}
        sys.modules[SOLUTION] = solution(lookup, sorted(given.keys() - names.bound))
        vars(module).update({name: value for name, value in given.items() if name not in names.hidden})
        vars(module).update(names.helpers)
        exec(code[0], module.__dict__)
        vars(module).update({name: given[name] for name in names.hidden})  # an error if the program has none

    def call(name: str) -> None:
        function = getattr(module, name)
        result = function(object_to_check(lookup, entry_point)) if name == CHECK and entry_point else function()
        if result is not None:  # a generator or coroutine has not run, and a truth is not an assert
            Nothing.refused.append(f"{name} returns something: it would not be run, or decides nothing")
            raise TypeError(f"{name} returned a {type(result).__name__}")

    failure = outcome(set_up)
    for unit, functions in zip(code[1:], names.tests[1:], strict=True):
        result = outcome(lambda unit=unit: exec(unit, module.__dict__)) if failure is True else failure
        if functions and result is True:
            yield from (outcome(functools.partial(call, name)) for name in functions)
        else:
            yield from [result] * max(1, len(functions))


def outcome(action: Callable) -> bool | str:
    try:
        action()
    except BaseException as error:
        return type(error).__name__
    return True


def object_to_check(lookup: Callable, entry_point: str) -> Any:
    """What the tests check: a function, or as `Solution().f` a method of a new object."""
    owner, _, method = entry_point.rpartition("().")
    return getattr(lookup(owner)(), method) if owner else lookup(entry_point)


def solution(lookup: Callable, public: list[str]) -> types.ModuleType:
    """The program as a module that the tests import; `public` is what a star import takes from it."""
    module = types.ModuleType(SOLUTION)

    def attribute(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return lookup(name)
        except KeyError:
            raise AttributeError(name) from None

    vars(module).update(__getattr__=attribute, __all__=public)
    return module
