"""
The size of every room: expressions (`ast.expr` nodes, which no line break changes), expressions on a line of code,
and the words of the pages. Nothing is enforced; ask of what grew which user has it.

    python -m scripts.build.house --base HEAD^
"""

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter


def expressions_and_lines(source: str) -> tuple[int, int]:
    """Expressions, and lines of code without blank ones, comments and docstrings."""
    nodes = list(ast.walk(ast.parse(source)))
    lines = {i for i, line in enumerate(source.splitlines(), 1) if line.strip() and not line.strip().startswith("#")}
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return sum(isinstance(node, ast.expr) for node in nodes), len(lines)


def sizes(revision: str) -> dict[str, Counter]:
    """Of each room of the package, of tests, of scripts and of the pages, at a commit."""
    packed = subprocess.run(["git", "archive", revision], check=True, capture_output=True).stdout
    rooms: dict[str, Counter] = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            folder, *rest = member.name.split("/")
            if member.name.endswith(".py") and folder in ("delta_trl", "scripts", "tests"):
                names = [folder, f"{folder}/{rest[0]}"] if folder == "delta_trl" and len(rest) > 1 else [folder]
                expressions, lines = expressions_and_lines(archive.extractfile(member).read().decode())
                size = Counter(expressions=expressions, lines=lines)
            elif member.name == "README.md" or (folder == "docs" and member.name.endswith(".md")):
                names, size = ["pages"], Counter(words=len(archive.extractfile(member).read().split()))
            else:
                continue
            for name in names:
                rooms.setdefault(name, Counter()).update(size)
    return rooms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", default="HEAD", help="the commit to measure (default: HEAD)")
    parser.add_argument("--base", default="HEAD^", help="the commit to compare with (default: HEAD^)")
    args = parser.parse_args()
    now, base = sizes(args.revision), sizes(args.base)
    for name, size in sorted(now.items()):
        unit = "words" if name == "pages" else "expressions"
        change = size[unit] - base.get(name, Counter())[unit]
        density = f"  {size['expressions'] / size['lines']:.2f} a line" if size["lines"] else ""
        print(f"{name:22}{size[unit]:8,} {unit:11} {change:+7,}{density}")


if __name__ == "__main__":
    main()
