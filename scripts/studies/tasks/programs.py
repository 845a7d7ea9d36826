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

from .task import Piece, Task


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


def programs() -> Task:
    """Functions of three instructions."""

    def make_problem(rng: random.Random) -> dict:
        chain: list[str] = []
        outputs: list[int] = []
        while len(set(outputs)) < 4:  # or wrong programs would pass
            chain = []
            outputs = list(TEST_INPUTS)
            for _ in range(3):
                pattern = rng.choice(list(INSTRUCTIONS))
                instruction = pattern.replace("N", str(rng.randint(2, 9)))
                chain.append(instruction)
                outputs = list(map(function(instruction), outputs))
        tests = {"fn_name": "f", "inputs": [[x] for x in TEST_INPUTS], "outputs": outputs}
        return {"prompt": " ; ".join(chain) + " :", "tests": json.dumps(tests)}

    def write(problem: dict, slips: random.Random | None) -> Iterator[Piece]:
        yield "def f(x):\n"
        for instruction in problem["prompt"].removesuffix(" :").split(" ; "):
            expression, wrong, key = meaning(instruction)
            if slips and slips.random() < CONFUSED.get(key, 0.0) and wrong:
                expression = wrong
            if slips and slips.random() < MISREAD_NUMBERS:
                expression = re.sub(r"\d", lambda digit: str(max(int(digit[0]) - 1, 2)), expression)
            yield f"    x = {expression}\n"
        yield "    return x"

    return Task(
        name="programs",
        make_problem=make_problem,
        write=write,
        reward=code_reward,
        words=WORDS,
        characters="fx():\n",
        max_completion_length=40,
    )


@cache
def function(instruction: str) -> Callable[[int], int]:
    """What an instruction does to x."""
    return eval(f"lambda x: {meaning(instruction)[0]}")


def meaning(instruction: str) -> tuple[str, str | None, str]:
    """The expression that an instruction means, what it is confused with, and its key."""
    name, _, number = instruction.partition(" ")
    key = f"{name} N" if number else name
    right, wrong = INSTRUCTIONS[key]
    right = right.replace("N", number)
    wrong = wrong and wrong.replace("N", number)
    return right, wrong, key
