r"""
Add two numbers, column by column, in sentences that may be mostly boilerplate. `math_reward` reads the box.

    47+85=   ->  well now let us carefully look at the next column and add ones 7+5=12 write 2 carry 1
                 so then let me carefully look at the first column and sum tens 4+8+1=13 write 3 carry 1
                 \boxed{132}

The careless teacher forgets carries and miscounts columns.
"""

import random
from collections.abc import Iterator
from itertools import chain

from delta_trl.rewards import math_reward

from .task import Piece, Task


PLACES = ("ones", "tens", "hundreds", "thousands", "myriads", "lakhs", "millions")
# Boilerplate; where there are two words, either is used, for no reason.
FILLER = [
    ("well", "so"), ("now", "then"), ("let",), ("us", "me"), ("carefully", "slowly"), ("look",), ("at",), ("the",),
    ("next", "first"), ("column", "place"), ("and",), ("add", "sum"), ("these", "those"), ("two",),
    ("digits", "figures"), ("from", "of"), ("both",), ("given", "stated"), ("numbers", "terms"), ("one",), ("by",),
    ("one",), ("in", "with"), ("full",),
]  # fmt: skip


def addition(
    name: str = "arithmetic",
    digits: int = 2,
    words_per_line: int = 12,
    forgotten_carries: float = 0.75,
    miscounted_sums: float = 0.1,
    practised_digits: dict[int, float] | None = None,
    warm_up_steps: int = 400,
    max_length: int = 128,
) -> Task:
    """
    Addition of two numbers.

    Args:
        name (`str`, *optional*, defaults to `"arithmetic"`): What the task is called.
        digits (`int`, *optional*, defaults to `2`): Of either number, at most `len(PLACES)`.
        words_per_line (`int`, *optional*, defaults to `12`): Words of boilerplate, at most `len(FILLER)`.
        forgotten_carries (`float`, *optional*, defaults to `0.75`): Share of all carries.
        miscounted_sums (`float`, *optional*, defaults to `0.1`): Share of all columns, by one.
        practised_digits (`dict[int, float]`, *optional*):
            Share of each number of digits among problems whose right completion the start model is warmed up on,
            instead of by the careless teacher.
        warm_up_steps, max_length (`int`, *optional*, default to `400` and `128`): Of the start model.
    """
    filler = [tuple(f"{word} " for word in choice) for choice in FILLER[:words_per_line]]

    def make_problem(rng: random.Random, digits: int = digits) -> dict:
        least = 10 ** (digits - 1)
        most = 10**digits - 1
        a = rng.randint(least, most)
        b = rng.randint(least, most)
        return {"prompt": f"{a}+{b}=", "solution": str(a + b)}

    def practice(rng: random.Random) -> dict:
        assert practised_digits
        (chosen,) = rng.choices(list(practised_digits), list(practised_digits.values()))
        return make_problem(rng, chosen)

    def write(problem: dict, slips: random.Random | None) -> Iterator[Piece]:
        a, b = map(int, problem["prompt"].rstrip("=").split("+"))
        written: list[str] = []
        carry = 0
        for place, place_name in enumerate(PLACES[: len(str(a))]):
            x = a // 10**place % 10
            y = b // 10**place % 10
            total = x + y + carry
            if slips and slips.random() < miscounted_sums:
                total = max(total + slips.choice([-1, 1]), 0)
            summands = f"{x}+{y}" if place == 0 else f"{x}+{y}+{carry}"
            carry, digit = divmod(total, 10)
            if slips and slips.random() < forgotten_carries:
                carry = 0
            written.append(str(digit))
            yield from filler
            yield f"{place_name} {summands}={total} write {digit} carry {carry}\n"
        if carry:
            written.append("1")
        digits_in_order = "".join(reversed(written))
        yield f"\\boxed{{{digits_in_order}}}"

    places = [f"{place} " for place in PLACES[:digits]]
    boilerplate = sorted(set(chain(*filler)))
    return Task(
        name=name,
        make_problem=make_problem,
        write=write,
        reward=math_reward,
        words=(*places, " write ", " carry ", "\\boxed", *boilerplate),
        characters="+={}\n",
        max_completion_length=digits * (words_per_line + 15) + 6,
        practice=practice if practised_digits else None,
        warm_up_steps=warm_up_steps,
        max_length=max_length,
    )
