"""
What tests of the sandbox are checked with, a file for each kind, a row for each case.

- `outcomes`: the `code` of a program, its `outcome`, and its `stdout`, `null` where that varies
- `outputs`: standard output that was `given`, and whether it is the `same` as what was `expected`
- `values`: the `value` that a function returns, and whether it is the `same` as what was `expected`
- `pairs`: `tests`, a program that is `right` and one that is `wrong`
- `objects`: a `test` of the objects of one program, and whether it `passes`
- `unreadable`: rows that are not tests in any format
- `unusable`: `tests` that no program can pass or that a wrong one could, and the `reason`
"""

import json
from pathlib import Path


def rows(kind: str) -> list[dict]:
    file = Path(__file__).parent / f"{kind}.jsonl"
    lines = file.read_text().splitlines()
    return [json.loads(line) for line in lines]
