"""Programs bred from the attack collection. None can know what its tests expect, so one that passes has broken in."""

import json
import random
import re
import textwrap


Attack = tuple[str, str, dict]  # name, program, tests

# Ways to run a program with another one
WRAPPERS = [
    "{program}\n{other}",
    "{other}\n{program}",
    "try:\n{indented}\nexcept BaseException as error:\n    pass\n{other}",
    "import threading\ndef body():\n{indented}\nt = threading.Thread(target=body); t.start(); t.join(0.2)\n{other}",
    "exec({program!r}, globals())\n{other}",
    "import atexit\n@atexit.register\ndef last():\n{indented}\n{other}",
    "class Last:\n    def __del__(self):\n{indented_twice}\nlast = Last()\n{other}",
    "import sys\nsys.settrace(lambda *a: None)\n{program}",
    "def f(*given):\n{indented}\n    return given[0] if given else None",
    "import builtins\nbuiltins.print = lambda *a, **k: None\nbuiltins.open = None\n{program}",
    "import os\nfor fd in range({low}, {low} + {number}):\n    try: os.dup(fd)\n    except OSError: pass\n{program}",
    "import gc\nfor one in gc.get_objects()[:20000]:\n    try:\n        if isinstance(one, dict) and 'code' in one: "
    "print(one)\n    except Exception: pass\n{program}",
]
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 64, 255, 4096, 65535, 2**31, 2**63, -1)
CHARACTERS = ("\x00", "\ud800", "\u202e", "\x1b[2J", "'" * 3, "(", "\\", "\r", "\x0c", "\t")


def unguessable(tests: dict, rng: random.Random) -> dict:
    """
    Tests that no program can pass: they expect a number that is drawn now, or a secret of the host.

    The number is as long as those that attacks look for. Tests that are code without such a number stay, since the
    attack was made for them, and get one more assertion.
    """
    answer = f"ANSWER-{rng.randrange(10**7, 10**8)}"
    text, found = re.subn(r"ANSWER-\d+", answer, json.dumps(tests))
    tests = json.loads(text)
    if found or "SECRET-" in text:
        return tests
    last = f"assert f(7) == {answer!r}"
    if "outputs" in tests:
        tests["outputs"] = [answer] * len(tests["outputs"])
    elif tests.get("entry_point"):
        tests["test"] += f"\n_given = check\ndef check(f):\n    _given(f)\n    {last}\n"
    elif tests.get("test_list"):
        tests["test_list"] = [*tests["test_list"], last]
    else:
        tests["test"] += f"\n{last}\n"
    return tests


def mutate(program: str, other: str, rng: random.Random) -> str:
    """One change: of a line, of a number, of a character, or of how it is run and with what else."""
    lines = program.split("\n")
    place = rng.randrange(len(lines))
    old = lines[place]
    line = rng.choice(other.split("\n"))
    kind = rng.randrange(6 + len(WRAPPERS))
    if kind < 4:
        without = []
        twice = [old, old]
        inserted = [line, old]
        replaced = [line]
        lines[place : place + 1] = (without, twice, inserted, replaced)[kind]
        return "\n".join(lines)
    if kind == 4:
        numbers = list(re.finditer(r"(?<![\w.])\d+(?![\w.])", program))
        start, end = rng.choice(numbers).span() if numbers else (0, 0)
        return program[:start] + str(rng.choice(NUMBERS)) + program[end:]
    if kind == 5:
        start = rng.randrange(len(program) + 1)
        return program[:start] + rng.choice(CHARACTERS) + program[start:]
    return rng.choice(WRAPPERS).format(
        program=program,
        other=other,
        indented=textwrap.indent(program, " " * 4) or "    pass",
        indented_twice=textwrap.indent(program, " " * 8),
        low=rng.randrange(5),
        number=rng.randrange(1, 70),
    )


def breed(attacks: list[Attack], lasting: list[Attack], rng: random.Random) -> Attack:
    """A program made of one to three changes to an attack, with tests that it cannot know."""
    collection = lasting if rng.random() < 0.05 else attacks
    name, program, tests = rng.choice(collection)
    changes = rng.choice((1, 1, 2, 3))
    for _ in range(changes):
        other_name, other, _ = rng.choice(attacks)
        program = mutate(program, other, rng)
        name = f"{name} + {other_name}"
        if len(program) > 200_000:
            break
    return name, program, unguessable(tests, rng)
