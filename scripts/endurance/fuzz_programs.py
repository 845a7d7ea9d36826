# ruff: noqa: E501 (programs, one to a line)
"""Programs bred from the attack collection. None can know what its tests expect, so one that passes has broken in."""

import json
import random
import re
import textwrap


Attack = tuple[str, str, dict]  # name, program, tests


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
    if "outputs" in tests:
        tests["outputs"] = [answer] * len(tests["outputs"])
        return tests
    last = f"assert f(7) == {answer!r}"
    if tests.get("entry_point"):
        tests["test"] += (
            f"\n_given = check\ndef check(candidate):\n    _given(candidate)\n    assert candidate(7) == {answer!r}\n"
        )
    elif tests.get("test_list"):
        tests["test_list"] = [*tests["test_list"], last]
    else:
        tests["test"] += f"\n{last}\n"
    return tests


def indented(program: str) -> str:
    return textwrap.indent(program, "    ") or "    pass"


def mutate(program: str, other: str, rng: random.Random) -> str:
    """One change: of a line, of a number, of how it is run, or of what else is run."""
    lines, others = program.split("\n"), other.split("\n")
    place, donor = rng.randrange(len(lines)), rng.randrange(len(others))
    kind = rng.randrange(18)
    if kind == 0:
        return "\n".join([*lines[:place], *lines[place + 1 :]])
    if kind == 1:
        return "\n".join([*lines[: place + 1], *lines[place:]])
    if kind == 2:
        return "\n".join([*lines[:place], others[donor], *lines[place:]])
    if kind == 3:
        return "\n".join([*lines[:place], others[donor], *lines[place + 1 :]])
    if kind == 4:
        return program + "\n" + other
    if kind == 5:
        return other + "\n" + program
    if kind == 6:
        return f"try:\n{indented(program)}\nexcept BaseException as error:\n    pass\n{other}"
    if kind == 7:
        return f"import threading\ndef body():\n{indented(program)}\nt = threading.Thread(target=body); t.start(); t.join(0.2)\n{other}"
    if kind == 8:
        return f"exec({program!r}, globals())\n{other}"
    if kind == 9:
        return f"import atexit\n@atexit.register\ndef last():\n{indented(program)}\n{other}"
    if kind == 10:
        return f"class Last:\n    def __del__(self):\n{textwrap.indent(program, ' ' * 8)}\nlast = Last()\n{other}"
    if kind == 11:
        numbers = list(re.finditer(r"(?<![\w.])\d+(?![\w.])", program))
        if not numbers:
            return program + "\n" + other
        number = rng.choice(numbers)
        new = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 9, 64, 255, 4096, 65535, 2**31, 2**63, -1))
        return program[: number.start()] + str(new) + program[number.end() :]
    if kind == 12:
        return f"import sys\nsys.settrace(lambda *a: None)\n{program}"
    if kind == 13:
        return f"def f(*given):\n{indented(program)}\n    return given[0] if given else None"
    if kind == 14:
        return f"import builtins\nbuiltins.print = lambda *a, **k: None\nbuiltins.open = None\n{program}"
    if kind == 15:
        return program.replace(
            "import os",
            f"import os\nfor fd in range({rng.randrange(0, 5)}, {rng.randrange(5, 70)}):\n    try: os.dup(fd)\n    except OSError: pass",
        )
    if kind == 16:
        start = rng.randrange(len(program) + 1)
        return (
            program[:start]
            + rng.choice(("\x00", "\ud800", "\u202e", "\x1b[2J", "'" * 3, "(", "\\", "\r", "\x0c", "\t"))
            + program[start:]
        )
    return f"import gc, sys\nfor one in gc.get_objects()[:20000]:\n    try:\n        if isinstance(one, dict) and 'code' in one: print(one)\n    except Exception: pass\n{program}"


def breed(attacks: list[Attack], lasting: list[Attack], rng: random.Random) -> Attack:
    """A program made of one to three changes to an attack, with tests that it cannot know."""
    name, program, tests = rng.choice(lasting if rng.random() < 0.05 else attacks)
    for _ in range(rng.choice((1, 1, 2, 3))):
        other_name, other, _ = rng.choice(attacks)
        program = mutate(program, other, rng)
        name = f"{name} + {other_name}"
        if len(program) > 200_000:
            break
    return name, program, unguessable(tests, rng)
