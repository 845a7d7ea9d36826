"""Runs a program on its inputs, the way `python program.py` would, one case after the other.

The program can forge the results that are reported here, but gains nothing: only the host has the expected outputs
and compares. A forged result is an answer like any other.
"""

import atexit
import builtins
import collections
import contextlib
import functools
import io
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from ..calls import FILE_NAME, call, compile_program, new_module
from .confinement import RESULT, empty


# The standard streams have descriptors in the jail, but no names.
STREAMS: dict[str, int] = {}
for number, name in enumerate(("stdin", "stdout", "stderr")):
    STREAMS |= dict.fromkeys((f"/dev/{name}", f"/dev/fd/{number}", f"/proc/self/fd/{number}"), number)
open_file = open


@functools.wraps(open_file)
def open_by_name(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Python's `open`, which also finds the standard streams, as one finds a pipe: all readers share its position."""
    number = STREAMS.get(str(file))
    return open_file(file if number is None else os.dup(number), *args, **kwargs)


builtins.open = io.open = open_by_name


def run_stdin(job: dict) -> int:
    """Run each case: the program as `__main__`, input on descriptor 0. Reports where its output ends, and a status."""

    def run_case(text: str) -> None:
        open_streams(text)
        module = new_module("__main__")
        sys.argv[:] = [FILE_NAME]
        sys.setrecursionlimit(1000)  # Python's default
        exec(job["code"], module.__dict__)

    def report(status: int) -> None:
        write_line({"end": os.lseek(1, 0, os.SEEK_END), "status": status})

    return run_cases(job, run_case, report)


def run_calls(job: dict) -> int:
    """Call the program's function for each case, in a fresh module. Reports the value, as JSON."""

    def run_case(arguments: list) -> None:
        write(call(job["code"], job["function"], arguments).encode() + b"\n")

    def report(status: int) -> None:
        if status != 0:
            write(b"\n")  # no value

    return run_cases(job, run_case, report)


def run_cases(job: dict, run_case: Callable[[Any], None], report: Callable[[int], None]) -> int:
    """
    Run cases until one leaves something behind: then the others need fresh processes. Report the status of each if
    there are several. Return that of the process.
    """
    open_streams("")
    status = guarded(lambda: job.update(code=compile_program(job["code"])))
    if status:
        return status
    state = State()
    for case in job["inputs"]:
        status = guarded(functools.partial(run_case, case))
        alone = threading.active_count() == 1
        if not alone:  # wait for them, as an interpreter does; then it can start no others
            status = guarded(threading._shutdown) or status  # type: ignore[attr-defined]  # private
        status = finish(status)
        if len(job["inputs"]) == 1:
            return status
        report(status)
        if not alone or not state.is_fresh():
            break
    return 0


class State:
    """
    Finds what one case has left for the next in the same process, as far as that is cheap: attributes of modules and
    builtins, the environment, files. A program can hide more, such as a changed value, and answer differently in a
    batch than alone; then the host counts none of the batch's answers.
    """

    def __init__(self):
        self.directory = os.getcwd()
        self.sizes = self.measure()

    @staticmethod
    def measure() -> dict[str, int]:
        of_program = ("__main__", "solution")
        sizes = {name: len(vars(module)) for name, module in list(sys.modules.items()) if name not in of_program}
        return sizes | {"os.environ": len(os.environ), "sys.path": len(sys.path)}

    def is_fresh(self) -> bool:
        """Empty the directory; return whether nothing else has changed. Imports do not count as a change."""
        try:
            os.chdir(self.directory)
            if self.directory != "/" and not empty(self.directory):
                return False
            sizes = self.measure()
        except Exception:  # it replaced what this needs
            return False
        imported = collections.Counter(name.rpartition(".")[0] for name in sizes if name not in self.sizes)
        before = self.sizes
        self.sizes = sizes
        return all(sizes.get(name) in (size, size + imported[name]) for name, size in before.items())


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
        traceback.print_exc(limit=-20)
        return 1
    return 0


def finish(status: int) -> int:
    """Do what an interpreter does at exit, after the threads: run atexit functions, flush, delete objects."""
    guarded(atexit._run_exitfuncs)
    for stream in (sys.stdout, sys.stderr):
        status = guarded(functools.partial(flush, stream)) or status
    guarded(lambda: vars(sys.modules["__main__"]).clear())
    # a replacement for sys.stdout may need what is deleted now
    return guarded(functools.partial(flush, sys.__stdout__)) or status


def flush(stream: Any) -> None:
    with contextlib.suppress(ValueError):  # it is closed, or detached: another stream has its content
        if stream is not None:
            stream.flush()


def open_streams(text: str) -> None:
    """Fresh standard streams; descriptor 0 holds `text` and then ends."""
    os.lseek(0, 0, os.SEEK_SET)
    os.ftruncate(0, 0)
    write(text.encode("utf-8", "surrogatepass"), descriptor=0)
    os.lseek(0, 0, os.SEEK_SET)
    # `open` and not `io.TextIOWrapper`: programs read `sys.stdin.mode`
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", errors="strict", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def write(data: bytes, descriptor: int = RESULT) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)


def write_line(value: object, descriptor: int = RESULT) -> None:
    write(json.dumps(value, separators=(",", ":")).encode() + b"\n", descriptor)
