"""Runs a program on its inputs, the way `python program.py` would, one case after the other.

The results it reports are the program's own word, and need be no better: they are what a host that holds the expected
outputs compares, and a program that forges them has merely answered.
"""

import atexit
import builtins
import collections
import functools
import io
import json
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any

from .. import codec
from .jail import GATE, RESULT, STEP, empty


FILE_NAME = "/tmp/solution.py"
RECURSION_LIMIT = 1000


def unlimited_integers() -> None:
    """Lift the limit of digits in conversions (security releases of 3.10, and 3.11): long answers are legitimate."""
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)


def compile_program(code: str) -> types.CodeType:
    return compile(code.removeprefix("\ufeff"), FILE_NAME, "exec", dont_inherit=True)


def run_stdin(job: dict) -> int:
    """Each case: the program as `__main__`, its input on descriptor 0. Reports where its output ends, and a status."""
    open_streams("")
    try:
        program = compile_program(job["code"])
    except Exception:
        return report_exception()
    cases = job["inputs"]
    state = State()
    for number, text in enumerate(cases):
        open_streams(text)
        status = run_main(program)
        alone = threading.active_count() == 1
        status = finish(status)
        if len(cases) == 1:
            return status
        write_result({"end": os.lseek(1, 0, os.SEEK_END), "status": status})
        # With its threads the interpreter was shut down, so the other cases need fresh processes then, too.
        if not alone or not state.is_fresh() or not may_go_on(number):
            return 0
    return 0


class State:
    """
    What one case could leave for the next in the same process, as far as it is cheap to see: attributes of modules
    and builtins, the environment, files. A program can hide more (the value of an attribute, say), and so answer
    otherwise in a batch than alone: then the host counts none of the batch's answers.
    """

    def __init__(self):
        self.directory = os.getcwd()
        self.sizes = self.measure()

    @staticmethod
    def measure() -> dict[str, int]:
        own = ("__main__", "solution")
        sizes = {name: len(vars(module)) for name, module in list(sys.modules.items()) if name not in own}
        return sizes | {"os.environ": len(os.environ), "sys.path": len(sys.path)}

    def is_fresh(self) -> bool:
        """Clean up the directory; whether nothing else has changed. Imports are no change."""
        try:
            os.chdir(self.directory)
            if self.directory != "/" and not empty(self.directory):
                return False
            sizes = self.measure()
        except Exception:  # it replaced what this needs
            return False
        imported = collections.Counter(name.rpartition(".")[0] for name in sizes if name not in self.sizes)
        changed = any(sizes.get(name) not in (size, size + imported[name]) for name, size in self.sizes.items())
        self.sizes = sizes
        return not changed


def may_go_on(number: int) -> bool:
    """Report the end of a case. After the first, the host says whether it is worth while to run the others."""
    os.write(STEP, b".")
    if number > 0:
        return True
    os.write(GATE, b".")
    return os.read(GATE, 1) != b""


def run_main(program: types.CodeType) -> int:
    module = types.ModuleType("__main__")
    vars(module).update(__file__=FILE_NAME, __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv[:] = [FILE_NAME]
    sys.setrecursionlimit(RECURSION_LIMIT)
    random.seed(0)  # every child of a zygote would draw the same numbers anyway
    return guarded(lambda: exec(program, module.__dict__))


def guarded(function: Callable[[], object]) -> int:
    """Call a function; the status with which an interpreter would end after it."""
    try:
        function()
    except SystemExit as exit:
        if exit.code is None or isinstance(exit.code, int):
            return (exit.code or 0) & 0xFF
        print(exit.code, file=sys.stderr)
        return 1
    except BaseException:
        return report_exception()
    return 0


def report_exception() -> int:
    traceback.print_exc(limit=-20)
    return 1


def finish(status: int) -> int:
    """What an interpreter does at exit: wait for threads, run atexit functions, flush."""
    if threading.active_count() > 1:
        status = guarded(threading._shutdown) or status  # type: ignore[attr-defined]  # private
    guarded(atexit._run_exitfuncs)
    # What the program leaves is deleted now, and not in a later case.
    guarded(lambda: vars(sys.modules["__main__"]).clear())
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            status = guarded(stream.flush) or status
    return status


def open_streams(text: str) -> None:
    """Fresh standard streams; descriptor 0 holds `text` and then ends."""
    os.lseek(0, 0, os.SEEK_SET)
    os.ftruncate(0, 0)
    data = text.encode("utf-8", "surrogatepass")
    while data:
        data = data[os.write(0, data) :]
    os.lseek(0, 0, os.SEEK_SET)
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), "utf-8", "strict")
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0, closefd=False), "utf-8", "backslashreplace", write_through=True)
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def write_result(value: object) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(RESULT, data) :]


def run_calls(job: dict) -> int:
    """Each case: a fresh module, one call of its function. Reports the value, as plain data."""
    open_streams("")
    try:
        program = compile_program(job["code"])
    except Exception:
        return report_exception()
    state = State()
    for number, arguments in enumerate(job["inputs"]):
        status = guarded(functools.partial(report_call, program, job["function"], arguments))
        status = finish(status)
        if len(job["inputs"]) == 1:
            return status
        if status != 0:
            write_result({"status": status})
        if not state.is_fresh() or not may_go_on(number):
            return 0
    return 0


def report_call(program: types.CodeType, name: str, arguments: list) -> None:
    write_result(call(program, name, arguments))


def call(program: types.CodeType, name: str, arguments: list) -> Any:
    """The encoded value of one call, of a function of the module or a method of its class Solution."""
    module = types.ModuleType("solution")
    vars(module).update(__file__=FILE_NAME, __builtins__=builtins)
    sys.modules["solution"] = module
    exec(DEFAULT_IMPORTS, module.__dict__)
    sys.setrecursionlimit(RECURSION_LIMIT)
    random.seed(0)
    exec(program, module.__dict__)
    if "Solution" in module.__dict__ and name not in module.__dict__:
        function = getattr(module.Solution(), name)
    else:
        function = getattr(module, name)
    return codec.encode(function(*codec.decode(arguments)))


# What LeetCode's judge imports before a solution.
DEFAULT_MODULES = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json"
)
DEFAULT_IMPORTS = compile(
    "\n".join(
        [f"import {name}" for name in DEFAULT_MODULES.split()]
        + [f"from {name} import *" for name in (*DEFAULT_MODULES.split(), "typing")]
        # some of these hide builtins (pow, abs), and some hide modules (datetime, copy) as LeetCode's do
        + ["from builtins import *"]
    ),
    "<default imports>",
    "exec",
)
