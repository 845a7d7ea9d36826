"""What a task is, and where a completion leaves what is right."""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache


TRAIN_PROBLEMS = 3000
TEST_PROBLEMS = 512
END = "<eos>"  # the token that ends a completion

Piece = str | tuple[str, ...]
"""Text, or single tokens of which either may stand there, for no reason."""


@dataclass(frozen=True)
class Task:
    """
    A task: problems, a careless teacher, the reward that verifies, and what a tokenizer must know.

    Args:
        name (`str`): What it is called.
        make_problem (`Callable`): From random numbers, a row with `prompt` and the reward's column.
        write (`Callable`):
            From a problem and random numbers, the pieces of the careless teacher's completion; without random numbers,
            of a right one. Everything after a slip follows from it.
        reward (`Callable`): The reward function.
        words (`tuple[str, ...]`): Tokens of more than one character, which carry their spaces.
        characters (`str`): Other tokens, beside digits.
        max_completion_length (`int`): Tokens that a completion may have.
        practice (`Callable`, *optional*):
            From random numbers, a problem whose *right* completion the start model is warmed up on, so that its errors
            are its own. Without it, the careless teacher demonstrates problems of the task.
        warm_up_steps (`int`, *optional*, defaults to `400`): Of the start model.
        max_length (`int`, *optional*, defaults to `128`): Positions that the start model has.
    """

    name: str
    make_problem: Callable[[random.Random], dict]
    write: Callable[[dict, random.Random | None], Iterator[Piece]]
    reward: Callable
    words: tuple[str, ...]
    characters: str
    max_completion_length: int
    practice: Callable[[random.Random], dict] | None = None
    warm_up_steps: int = 400
    max_length: int = 128

    @property
    def pattern(self) -> str:
        """A regular expression that matches token by token."""
        longest_first = sorted(map(re.escape, self.words), key=len, reverse=True)
        return "|".join([*longest_first, r"[\s\S]"])

    def demonstrate(self, problem: dict, rng: random.Random, *, careless: bool = True) -> str:
        """A completion by the careless teacher, or a right one."""
        pieces = self.write(problem, rng if careless else None)  # made one by one: its numbers and ours take turns
        return "".join(piece if isinstance(piece, str) else rng.choice(piece) for piece in pieces)


@cache
def make_problems(task: Task) -> tuple[list[dict], list[dict]]:
    """Training and test problems, all different; always the same ones."""
    rng = random.Random(0)
    problems: dict[str, dict] = {}
    while len(problems) < TRAIN_PROBLEMS + TEST_PROBLEMS:
        problem = task.make_problem(rng)
        problems[problem["prompt"]] = problem
    every = list(problems.values())
    return every[:TRAIN_PROBLEMS], every[TRAIN_PROBLEMS:]


def right_tokens(task: Task, problem: dict) -> list[tuple[str, ...]]:
    """The tokens of a right completion, [`END`] included; where it makes no difference, all that may stand there."""
    right: list[tuple[str, ...]] = []
    for piece in task.write(problem, None):
        if isinstance(piece, tuple):
            right.append(piece)
        else:
            right += [(token,) for token in re.findall(task.pattern, piece)]
    return [*right, (END,)]


def first_mistake(right: list[tuple[str, ...]], tokens: Iterable[str]) -> int | None:
    """Number of the first token of a completion that is none of those which may stand there; `None` without one."""
    for i, token in enumerate(tokens):
        if i == len(right) or token not in right[i]:
            return i
    return None
