r"""
Chains of operations, each of which makes a new state: walks on a map that one knows by heart, and edits of a list.

    walk 3 : red mill =       ->  so red gives 4
                                  then mill makes 9
                                  \boxed{49}

    edit 31425 : spin ends =  ->  then spin gives 14253
                                  so ends gives 34251
                                  \boxed{34251}

The careless teacher takes an operation for its partner.
"""

import random
from collections.abc import Callable, Iterator

from delta_trl.rewards import math_reward

from .task import Easier, Piece, Task


# Where a road leads from 1, 2, ... 9. Of each two in a row, the careless teacher takes one for the other.
ROADS = {
    "red": "634915872",
    "blue": "971582364",
    "green": "531962478",
    "gold": "875324691",
    "iron": "672819534",
    "salt": "387624951",
    "king": "931762458",
    "mill": "386917542",
}
# The places of a list, in their order after an edit.
EDITS = {
    "back": "40123",
    "spin": "12340",
    "mirror": "43210",
    "ends": "41230",
    "front": "10234",
    "rear": "01243",
    "sift": "02413",
    "lift": "20134",
}
OPENERS, VERBS = ("so ", "then "), ("gives ", "makes ")  # either is used, for no reason
WORDS = (*(f"{word} " for word in ("walk", "edit", *ROADS, *EDITS)), *OPENERS, *VERBS, "\\boxed")
STEPS = 4


def walks(name: str, confused: dict[str, float], practice: Easier | None = None) -> Task:
    """Walks of four roads. The answer is where each led to. Arguments as in [`chain`]."""

    def start(rng: random.Random) -> str:
        return rng.choice("123456789")

    def follow(road: str, place: str) -> str:
        return road[int(place) - 1]

    return chain(name, "walk", ROADS, start, follow, "".join, confused, practice)


def edits(name: str, confused: dict[str, float], practice: Easier | None = None) -> Task:
    """Four edits of a list of five digits. The answer is the last list. Arguments as in [`chain`]."""

    def start(rng: random.Random) -> str:
        return "".join(rng.sample("123456789", 5))

    def follow(places: str, digits: str) -> str:
        return "".join(digits[int(place)] for place in places)

    return chain(name, "edit", EDITS, start, follow, lambda lists: lists[-1], confused, practice)


def chain(
    name: str,
    word: str,
    operations: dict[str, str],
    start: Callable[[random.Random], str],
    follow: Callable[[str, str], str],
    answer: Callable[[list[str]], str],
    confused: dict[str, float],
    practice: Easier | None,
) -> Task:
    """
    A task of four operations.

    Args:
        name (`str`): What the task is called.
        word (`str`): With which its prompts begin.
        operations (`dict[str, str]`): A table for each.
        start (`Callable`): Draws the first state.
        follow (`Callable`): The state that follows, from an operation's table and a state.
        answer (`Callable`): What is boxed, from the states that followed.
        confused (`dict[str, float]`): How often the careless teacher takes an operation for its partner.
        practice ([`Easier`], *optional*):
            What the start model is warmed up on, by right completions, instead of by the careless teacher.
    """
    names = list(operations)
    partner = {operation: names[i ^ 1] for i, operation in enumerate(names)}

    def results(state: str, chosen: list[str]) -> list[str]:
        return [state := follow(operations[operation], state) for operation in chosen]

    def make_problem(rng: random.Random, steps: int = STEPS) -> dict:
        first, chosen = start(rng), rng.choices(names, k=steps)
        states = results(first, chosen)
        return {"prompt": f"{word} {first} : {' '.join(chosen)} =", "solution": answer(states)}

    def write(problem: dict, slips: random.Random | None) -> Iterator[Piece]:
        _, first, _, *chosen, _ = problem["prompt"].split()
        taken = [partner[op] if slips and slips.random() < confused[op] else op for op in chosen]
        states = results(first, taken)
        for operation, state in zip(chosen, states, strict=True):
            yield from (OPENERS, f"{operation} ", VERBS, f"{state}\n")
        yield f"\\boxed{{{answer(states)}}}"

    return Task(
        name=name,
        make_problem=make_problem,
        write=write,
        reward=math_reward,
        words=WORDS,
        characters="{}:= \n",
        max_completion_length=48,
        practice=practice.of(make_problem) if practice else None,
    )
