"""
Write the Python function that a chain of three instructions describes. `code_reward` runs hidden tests.

    take 3 ; square ; left 7 :   ->  def f(x):
                                         x = x - 3
                                         x = x * x
                                         x = x % 7
                                         return x

The careless teacher confuses instructions and misreads numbers.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from functools import cache

from delta_trl.rewards import code_reward

from .task import Easier, Piece, Task


# instruction: the expression it means, and what the careless teacher takes it for
INSTRUCTIONS = {
    "add N": ("x + N", None),
    "times N": ("x * N", None),
    "take N": ("x - N", "N - x"),
    "from N": ("N - x", "x - N"),
    "over N": ("x // N", "x % N"),
    "left N": ("x % N", "x // N"),
    "square": ("x * x", "x + x"),
    "double": ("x + x", "x * x"),
}
CONFUSED = {"take N": 0.2, "over N": 0.2, "square": 0.2, "from N": 0.6, "left N": 0.6, "double": 0.6}
MISREAD_NUMBERS = 0.05  # of all numbers, by one
TEST_INPUTS = [-7, -1, 0, 2, 5, 13, 30]
WORDS = (
    *("add ", "times ", "take ", "from ", "over ", "left ", "square", "double", " ; ", " :", "def ", "return "),
    *("    ", " = ", " + ", " * ", " - ", " // ", " % "),
)


def programs(
    name: str = "programs",
    instructions: int = 3,
    confused: dict[str, float] = CONFUSED,
    two_spellings: bool = False,
    practice: Easier | None = None,
) -> Task:
    """
    Functions of some instructions.

    Args:
        name (`str`, *optional*, defaults to `"programs"`): What the task is called.
        instructions (`int`, *optional*, defaults to `3`): In a chain.
        confused (`dict[str, float]`, *optional*): How often the careless teacher confuses an instruction.
        two_spellings (`bool`, *optional*, defaults to `False`):
            Whether spaces around operators may be missing, for no reason.
        practice ([`Easier`], *optional*):
            What the start model is warmed up on, by right completions, instead of by the careless teacher.
    """

    def make_problem(rng: random.Random, instructions: int = instructions) -> dict:
        chain: list[str] = []
        outputs: list[int] = []
        while len(set(outputs)) < 4:  # or wrong programs would pass
            chain = [rng.choice(list(INSTRUCTIONS)).replace("N", str(rng.randint(2, 9))) for _ in range(instructions)]
            outputs = list(TEST_INPUTS)
            for instruction in chain:
                outputs = list(map(function(instruction), outputs))
        tests = {"fn_name": "f", "inputs": [[x] for x in TEST_INPUTS], "outputs": outputs}
        return {"prompt": " ; ".join(chain) + " :", "tests": json.dumps(tests)}

    def write(problem: dict, slips: random.Random | None) -> Iterator[Piece]:
        yield "def f(x):\n"
        for instruction in problem["prompt"].removesuffix(" :").split(" ; "):
            expression, wrong, key = meaning(instruction)
            if slips and slips.random() < confused.get(key, 0.0) and wrong:
                expression = wrong
            if slips and slips.random() < MISREAD_NUMBERS:
                expression = "".join(str(max(int(c) - 1, 2)) if c.isdigit() else c for c in expression)
            pieces = re.split(r"( (?:=|[-+*%]|//) )", f"    x = {expression}\n")  # every second one is an operator
            yield from ((p, p.strip()) if two_spellings and i % 2 else p for i, p in enumerate(pieces))
        yield "    return x"

    return Task(
        name=name,
        make_problem=make_problem,
        write=write,
        reward=code_reward,
        words=WORDS,
        characters="fx():\n",
        max_completion_length=7 * instructions + 19,
        practice=practice.of(make_problem) if practice else None,
    )


@cache
def function(instruction: str) -> Callable[[int], int]:
    """What an instruction does to x."""
    return eval(f"lambda x: {meaning(instruction)[0]}")


def meaning(instruction: str) -> tuple[str, str | None, str]:
    """The expression that an instruction means, what it is confused with, and its key."""
    name, _, number = instruction.partition(" ")
    key = f"{name} N" if number else name
    right, wrong = (e and e.replace("N", number) for e in INSTRUCTIONS[key])
    assert right
    return right, wrong, key
