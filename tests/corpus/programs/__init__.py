"""
Programs, a file for each kind, a row for each: its `name`, the `program`, and `tests` as code_reward takes them.

Those of `right.jsonl` earn 1, with `needs` only where this is given. All others are attacks and earn 0; those with
`lasts` end by their time limit alone. Their tests reward an attack that works: they expect what the program must not
be able to read, or "done", which it prints after what it must not be able to do. Words in capitals are replaced by
`host.py`: paths, ports and process ids of things on the host.
"""

import json
from pathlib import Path


Program = tuple[str, str, dict]  # name, program, tests
ATTACKS: list[Program] = []
LASTING: list[Program] = []
RIGHT: list[Program] = []
NEEDS_TEMPORARY_DIRECTORY: list[Program] = []
FILES = sorted(Path(__file__).parent.glob("*.jsonl"))
KINDS = [path.stem for path in FILES if path.stem != "right"]  # of attacks; names begin with them
for path in FILES:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if path.stem == "right":
            programs = NEEDS_TEMPORARY_DIRECTORY if "needs" in row else RIGHT
        else:
            programs = LASTING if "lasts" in row else ATTACKS
        name = f"{path.stem}: {row['name']}"
        programs.append((name, row["program"], row["tests"]))

X = {"inputs": [""], "outputs": ["x"]}
# What is too long for a row is built here
DEEP = "(" * 100_000 + ")" * 100_000
FOLDED = "x = (((((((1 << 99999) << 99999) << 99999))))) " + "* 2" * 10_000
LONG_LINE = "print('y" + "x" * 5_000_000 + "')"
COMPILED = "x = " + "(1,)*" * 20 + "(" + "0," * 300_000 + ")\n" + "y = 1 ** 1\n" * 10_000
ATTACKS.append(("text: deep parentheses", DEEP, X))
ATTACKS.append(("text: constant folding bomb", FOLDED, X))
ATTACKS.append(("text: huge line", LONG_LINE, X))
LASTING.append(("text: compile bomb", COMPILED, X))
NUMBERS = "\n".join(map(str, range(10**5)))
MANY = {"inputs": [""], "outputs": [NUMBERS]}
RIGHT.append(("stdin: many lines out", "for i in range(10**5):\n    print(i)", MANY))
