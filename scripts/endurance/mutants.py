"""
Would the tests notice a mistake? Changes one line of the package at a time and runs the tests that concern it.

    python -m scripts.endurance.mutants --count 150 --seed 0 --output outputs/mutants.jsonl
    python -m scripts.endurance.mutants --again outputs/mutants.jsonl --output outputs/after.jsonl

A mutant is killed when a test fails or does not end, and survives when all tests pass. Some of those that survive
mean the same as the original; their share does not depend on the tests. The seed decides which mutants are made.
Rows that are in the output already are not done again.

`--again` makes the mutants that were killed once more, after tests were deleted. A mutant whose code has gone is
counted and not made.
"""

import argparse
import ast
import contextlib
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psutil
import pytest


ROOT = Path(__file__).parents[2]
PACKAGE = "delta_trl"
SECONDS, PROCESSES = 1800, 100  # for the tests of one mutant: one that starts workers without end takes all memory
# What is tested by the tests of other packages, in this order
TESTED_BY = {
    "arguments": ("commands",),
    "credit": ("credit", "trainer"),
    "scoring": ("scoring", "trainer", "credit", "commands"),
    "sandbox": ("sandbox", "rewards"),
    "cli.py": ("commands", "evaluation"),
    "files.py": ("report", "commands", "evaluation"),
}
PAIRS = [(ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)]
PAIRS += [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or)]
OTHER_OPERATOR = {**dict(PAIRS), **{b: a for a, b in PAIRS}, ast.FloorDiv: ast.Mult}


def mutated(node: ast.AST) -> ast.AST | None:
    """A copy of a syntax node with one mistake in it, or `None` where none is known."""
    node = copy.copy(node)
    match node:
        case ast.Compare(ops=[op, *rest]):
            node.ops = [OTHER_OPERATOR[type(op)](), *rest]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OTHER_OPERATOR:
            node.op = OTHER_OPERATOR[type(op)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.Constant(value=float(value)):
            node.value = value * 2 + 1
        case ast.If(test=test) | ast.IfExp(test=test):
            node.test = ast.UnaryOp(ast.Not(), test)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in ("None", "True", "False"):
            node.value = ast.Constant(None)  # in place of `False` it would mean the same to most who ask
        case ast.Expr(value=ast.Call()):
            return ast.Pass()
        case _:
            return None
    return node


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Where a mutant can be put: the parent, its field, and the index in it if that is a list. Skips annotations,
    messages of errors and texts."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list") or isinstance(value, ast.JoinedStr):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.Raise, ast.Import, ast.ImportFrom)):
                continue
            if mutated(child) is not None:
                yield tree, field, index
            yield from places(child)


def mutants(root: Path, count: int, seed: int, only: str = "") -> list[tuple[str, int]]:
    """Files of the package, and which of their places to change; each place is as likely. `only` is searched for in
    the files' names."""
    files = sorted(path.relative_to(root).as_posix() for path in (root / PACKAGE).rglob("*.py"))
    files = [file for file in files if re.search(only, file)]
    every = [(file, i) for file in files for i, _ in enumerate(places(ast.parse((root / file).read_text())))]
    return random.Random(seed).sample(every, min(count, len(every)))


def killed_before(root: Path, rows: list[dict]) -> list[tuple[str, int]]:
    """The mutants of rows that were killed, as far as their code is still there, on whatever line."""

    def key(row: dict) -> tuple:
        return row["file"], row["function"], row["was"], row["is"], row.get("nth", 0)

    wanted, found = {key(row) for row in rows if row["killed"]}, {}
    for file in sorted({row["file"] for row in rows}):
        source = (root / file).read_text() if (root / file).exists() else ""
        found |= {key({"file": file, **one}): (file, place) for place, one in enumerate(records(source))}
    print(f"{len(wanted)} mutants were killed; the code of {len(wanted & found.keys())} is still there")
    return [found[one] for one in sorted(wanted & found.keys())]


def function_at(tree: ast.AST, line: int) -> str:
    """The functions and classes, from the outermost, in which a line stands."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    around = [node for node in ast.walk(tree) if isinstance(node, scopes) and node.lineno <= line <= node.end_lineno]
    return ".".join(node.name for node in sorted(around, key=lambda node: node.lineno))


def records(source: str) -> Iterator[dict]:
    """What is changed at each place; `nth` counts equal changes within a function."""
    tree, seen = ast.parse(source), Counter()
    for parent, field, index in places(tree):
        old = getattr(parent, field) if index is None else getattr(parent, field)[index]
        was, now = ast.unparse(old)[:200], ast.unparse(ast.copy_location(mutated(old), old))[:200]
        one = {"line": old.lineno, "function": function_at(tree, old.lineno), "was": was, "is": now}
        same = one["function"], was, now
        yield {**one, "nth": seen[same]}
        seen[same] += 1


def mutate(source: str, number: int) -> tuple[str, dict]:
    """The source with a mistake at that place, and a record of what was changed."""
    tree = ast.parse(source)
    parent, field, index = list(places(tree))[number]
    old = getattr(parent, field) if index is None else getattr(parent, field)[index]
    new = ast.copy_location(mutated(old), old)
    if index is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new
    return ast.unparse(ast.fix_missing_locations(tree)), next(islice(records(source), number, None))


def concerned(file: str, root: Path) -> list[str]:
    """The test files that concern a file of the package, those named after it first."""
    room, tests = Path(file).parts[1], root / "tests"
    is_module = room.endswith(".py")
    found = sorted(tests.glob("test_*.py")) if is_module else []
    for name in TESTED_BY.get(room, () if is_module else (room,)):
        found += sorted((tests / name).rglob("test_*.py"))
    found.sort(key=lambda path: Path(file).stem not in path.stem)  # stable
    return [path.relative_to(root).as_posix() for path in found]


def survives(root: Path, tests: list[str]) -> bool:
    """Whether all tests pass that `make test` runs, and then those that `make test-processes` runs."""
    return all(pass_all(root, tests, *marks) for marks in ([], ["-m", "processes and not slow"]))


def pass_all(root: Path, tests: list[str], *options: str) -> bool:
    """Whether all tests pass, or there are none. In a forked process, which need not import torch and TRL again."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        sink = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(sink, stream)
        code = 1
        try:
            os.chdir(root)
            sys.path[:] = [str(root), *(path for path in sys.path if path not in ("", str(ROOT)))]
            os.environ["PYTHONPATH"] = str(root)
            os.environ["CI"] = "1"  # a mutant with which the sandbox cannot be set up is killed, not skipped
            fixed = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "300"]
            code = pytest.main([*fixed, *options, *tests])
        finally:
            os._exit(code)
    started, family = time.monotonic(), set()
    done, status = 0, 1
    while not done and time.monotonic() - started < SECONDS and len(family) < PROCESSES:
        time.sleep(0.5)
        family |= set(psutil.Process(pid).children(recursive=True))
        family = {process for process in family if process.is_running()}
        done, status = os.waitpid(pid, os.WNOHANG)
    for process in family if done else {*family, psutil.Process(pid)}:  # what it has left behind, too
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return bool(done) and os.waitstatus_to_exitcode(status) in (0, pytest.ExitCode.NO_TESTS_COLLECTED)


def copied(folder: Path) -> Path:
    """The repository's files in a folder of their own, so that nobody else sees a mutant."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for file in filter(None, files.split("\0")):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, folder / file)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="REGEX", help="files of the package to change")
    parser.add_argument("--again", type=Path, metavar="ROWS", help="make the mutants that were killed in these rows")
    parser.add_argument("--output", type=Path, default=Path("outputs/mutants.jsonl"))
    args = parser.parse_args()
    if args.again:
        chosen = killed_before(ROOT, [json.loads(line) for line in args.again.read_text().splitlines()])
    else:
        chosen = mutants(ROOT, args.count, args.seed, args.only)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in args.output.read_text().splitlines()] if args.output.exists() else []
    done = {(row["file"], row["place"]) for row in rows}
    import trl.trainer.grpo_trainer  # noqa: F401 (once for all mutants)

    with tempfile.TemporaryDirectory() as folder:
        root = copied(Path(folder))
        if not rows and not survives(root, concerned(chosen[0][0], root)):
            sys.exit("The tests fail without a mutant: run `make test`.")
        for number, (file, place) in enumerate(chosen, start=1):
            if (file, place) in done:
                continue
            source, started = (root / file).read_text(), time.monotonic()
            changed, record = mutate(source, place)
            (root / file).write_text(changed)
            killed = not survives(root, concerned(file, root))
            (root / file).write_text(source)
            seconds = round(time.monotonic() - started, 1)
            rows.append({"file": file, "place": place, **record, "killed": killed, "seconds": seconds})
            with args.output.open("a") as output:
                output.write(json.dumps(rows[-1]) + "\n")
            print(f"{number}/{len(chosen)} {'killed' if killed else 'SURVIVED'} {file}:{record['line']} ({seconds} s)")
        if not survives(root, concerned(chosen[0][0], root)):
            sys.exit("The tests fail without a mutant now: what has changed meanwhile may have killed some.")
    print(f"{sum(row['killed'] for row in rows)} of {len(rows)} mutants killed")


if __name__ == "__main__":
    main()
