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
from pathlib import Path

import psutil
import pytest


ROOT = Path(__file__).parents[2]
PACKAGE = "delta_trl"
# For the tests of one mutant. One that starts workers without end would take all memory.
SECONDS = 1800
PROCESSES = 100
# What is tested by the tests of other packages, in this order
TESTED_BY = {
    "arguments": ("commands",),
    "credit": ("credit", "trainer"),
    "scoring": ("scoring", "trainer", "credit", "commands"),
    "sandbox": ("sandbox", "rewards"),
    "cli.py": ("commands", "evaluation"),
    "files.py": ("report", "commands", "evaluation"),
}
PAIRS = [
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.And, ast.Or),
]
OTHER_OPERATOR = {ast.FloorDiv: ast.Mult}
for one, other in PAIRS:
    OTHER_OPERATOR[one] = other
    OTHER_OPERATOR[other] = one
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "300"]  # of pytest


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


def places(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes in which a mistake can be made. Skips annotations, messages of errors and texts."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list") or isinstance(value, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.Raise, ast.Import, ast.ImportFrom)):
                continue
            if mutated(child) is not None:
                yield child
            yield from places(child)


def mutants(root: Path, count: int, seed: int, only: str = "") -> list[tuple[str, int]]:
    """Files of the package, and which of their places to change; each place is as likely. `only` is searched for in
    the files' names."""
    every = []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if re.search(only, file):
            tree = ast.parse(path.read_text())
            every += [(file, number) for number, _ in enumerate(places(tree))]
    rng = random.Random(seed)
    return rng.sample(every, min(count, len(every)))


def identity(row: dict) -> tuple:
    """What tells a mutant from the others of its file, on whatever line it is."""
    return row["function"], row["was"], row["is"], row.get("nth", 0)


def killed_before(root: Path, rows: list[dict]) -> list[tuple[str, int]]:
    """The mutants of rows that were killed, as far as their code is still there, on whatever line."""
    wanted = {}  # by file
    for row in rows:
        if row["killed"]:
            wanted.setdefault(row["file"], set()).add(identity(row))
    found = []
    for file, of_file in sorted(wanted.items()):
        path = root / file
        source = path.read_text() if path.exists() else ""
        for place, record in enumerate(records(source)):
            if identity(record) in of_file:
                found.append((file, place))
    print(f"{sum(map(len, wanted.values()))} mutants were killed; the code of {len(found)} is still there")
    return found


def function_at(tree: ast.AST, line: int) -> str:
    """The functions and classes, from the outermost, in which a line stands."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [node for node in ast.walk(tree) if isinstance(node, scopes)]
    around = [node for node in found if node.lineno <= line <= node.end_lineno]
    around.sort(key=lambda node: node.lineno)
    return ".".join(node.name for node in around)


def records(source: str) -> Iterator[dict]:
    """What is changed at each place; `nth` counts equal changes within a function."""
    tree = ast.parse(source)
    seen = Counter()
    for old in places(tree):
        new = ast.copy_location(mutated(old), old)
        record = {
            "line": old.lineno,
            "function": function_at(tree, old.lineno),
            "was": ast.unparse(old)[:200],
            "is": ast.unparse(new)[:200],
        }
        same = identity(record)
        yield {**record, "nth": seen[same]}
        seen[same] += 1


class Replace(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST):
        self.old = old
        self.new = new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def mutate(source: str, number: int) -> tuple[str, dict]:
    """The source with a mistake at that place, and a record of what was changed."""
    tree = ast.parse(source)
    old = list(places(tree))[number]
    changed = Replace(old, mutated(old)).visit(tree)
    return ast.unparse(ast.fix_missing_locations(changed)), list(records(source))[number]


def concerned(file: str, root: Path) -> list[str]:
    """The test files that concern a file of the package, those named after it first."""
    tests = root / "tests"
    room = Path(file).parts[1]
    if room.endswith(".py"):
        found = sorted(tests.glob("test_*.py"))
        others = TESTED_BY.get(room, ())
    else:
        found = []
        others = TESTED_BY.get(room, (room,))
    for name in others:
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
        code = 1
        try:
            code = run_silently(root, [*OPTIONS, *options, *tests])
        finally:
            os._exit(code)
    started = time.monotonic()
    family = set()
    done = 0
    status = 1
    while not done and time.monotonic() - started < SECONDS and len(family) < PROCESSES:
        time.sleep(0.5)
        family |= set(psutil.Process(pid).children(recursive=True))
        family = {process for process in family if process.is_running()}
        done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        family.add(psutil.Process(pid))
    for process in family:  # what it has left behind, too
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return bool(done) and os.waitstatus_to_exitcode(status) in (0, pytest.ExitCode.NO_TESTS_COLLECTED)


def run_silently(root: Path, arguments: list[str]) -> int:
    """pytest's exit code for the copy of the repository in `root`."""
    os.setpgid(0, 0)
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    os.chdir(root)
    others = [path for path in sys.path if path not in ("", str(ROOT))]
    sys.path[:] = [str(root), *others]
    os.environ["PYTHONPATH"] = str(root)
    os.environ["CI"] = "1"  # a mutant with which the sandbox cannot be set up is killed, not skipped
    return pytest.main(arguments)


def copied(folder: Path) -> Path:
    """The repository's files in a folder of their own, so that nobody else sees a mutant."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for file in filter(None, listed.stdout.split("\0")):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, folder / file)
    return folder


def read_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="REGEX", help="files of the package to change")
    parser.add_argument("--again", type=Path, metavar="ROWS", help="make the mutants that were killed in these rows")
    parser.add_argument("--output", type=Path, default=Path("outputs/mutants.jsonl"))
    args = parser.parse_args()
    if args.again:
        chosen = killed_before(ROOT, read_rows(args.again))
    else:
        chosen = mutants(ROOT, args.count, args.seed, args.only)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    rows = read_rows(args.output) if args.output.exists() else []
    done = {(row["file"], row["place"]) for row in rows}
    import trl.trainer.grpo_trainer  # noqa: F401 (once for all mutants)

    with tempfile.TemporaryDirectory() as folder:
        root = copied(Path(folder))
        first = concerned(chosen[0][0], root)
        if not rows and not survives(root, first):
            sys.exit("The tests fail without a mutant: run `make test`.")
        for number, (file, place) in enumerate(chosen, start=1):
            if (file, place) in done:
                continue
            started = time.monotonic()
            source = (root / file).read_text()
            changed, record = mutate(source, place)
            (root / file).write_text(changed)
            killed = not survives(root, concerned(file, root))
            (root / file).write_text(source)
            seconds = round(time.monotonic() - started, 1)
            row = {"file": file, "place": place, **record, "killed": killed, "seconds": seconds}
            rows.append(row)
            with args.output.open("a") as output:
                output.write(json.dumps(row) + "\n")
            outcome = "killed" if killed else "SURVIVED"
            print(f"{number}/{len(chosen)} {outcome} {file}:{record['line']} ({seconds} s)")
        if not survives(root, first):
            sys.exit("The tests fail without a mutant now: what has changed meanwhile may have killed some.")
    print(f"{sum(row['killed'] for row in rows)} of {len(rows)} mutants killed")


if __name__ == "__main__":
    main()
