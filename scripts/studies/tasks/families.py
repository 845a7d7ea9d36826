r"""
Twelve families of short problems with verifiable answers, in one vocabulary. Nine are here; three are those of the
study `elicit`, made by `chains` and `programs`. Each of these is two tasks, which differ in their start model:

    NAME_narrow   was shown this task alone, by its careless teacher
    NAME_broad    was shown all families, by right demonstrations; of the task mostly shorter chains, and hardly ever
                  what is hard: the operations that the careless teacher nearly always confuses

Demonstrations of one family differ: in words, in the order of what may be done in any order, in the way taken.
"""

import random
from dataclasses import replace

from .chains import EDITS, OPENERS, ROADS, edits, walks
from .chains import WORDS as CHAIN_WORDS
from .programs import INSTRUCTIONS, programs
from .programs import WORDS as PROGRAM_WORDS
from .task import Easier, Task


Demonstration = tuple[str, str, str]  # what follows the family's name in the prompt, work and solution


def digits(rng: random.Random, least: int, most: int) -> list[int]:
    return [rng.randint(1, 9) for _ in range(rng.randint(least, most))]


def either_way(rng: random.Random, items: list) -> list:
    """From the first or from the last: it makes no difference."""
    return rng.choice([items, items[::-1]])


def spaced(items: list) -> str:
    return " ".join(map(str, items))


def joined(items: list) -> str:
    return "".join(map(str, items))


def total(rng: random.Random) -> Demonstration:
    """The sum of digits, one by one."""
    numbers = digits(rng, 2, 5)
    first, *rest = either_way(rng, numbers)
    work = ""
    for number in rest:
        work += f"{first}+{number}={first + number}\n"
        first += number
    return spaced(numbers), work, str(first)


def largest(rng: random.Random) -> Demonstration:
    """The largest digit, by the largest so far."""
    numbers = digits(rng, 3, 6)
    order, word = either_way(rng, numbers), rng.choice(OPENERS)
    work = "".join(f"{order[i]} {word}{max(order[: i + 1])}\n" for i in range(len(order)))
    return spaced(numbers), work, str(max(numbers))


def count(rng: random.Random) -> Demonstration:
    """How often the first digit is among the others."""
    wanted, *numbers = (rng.randint(1, 3) for _ in range(rng.randint(4, 7)))
    order, word = either_way(rng, numbers), rng.choice(OPENERS)
    work = "".join(f"{order[i]} {word}{order[: i + 1].count(wanted)}\n" for i in range(len(order)))
    return f"{wanted} : {spaced(numbers)}", work, str(numbers.count(wanted))


def ascending(rng: random.Random) -> Demonstration:
    """Digits in their order, by taking the smallest, or the largest, of what is left."""
    numbers = rng.sample(range(1, 10), rng.randint(2, 5))
    least, left, work = rng.random() < 0.5, list(numbers), ""
    while left:
        taken = min(left) if least else max(left)
        left.remove(taken)
        work += f"{rng.choice(OPENERS)}{taken} : {joined(left)}\n"
    return joined(numbers), work, joined(sorted(numbers))


def backwards(rng: random.Random) -> Demonstration:
    """Digits from the last to the first, with or without the steps."""
    numbers = digits(rng, 2, 5)
    steps = [joined(numbers[-i:][::-1]) for i in range(1, len(numbers))] if rng.random() < 0.5 else []
    return joined(numbers), "".join(f"{step}\n" for step in steps), joined(numbers[::-1])


def rest(rng: random.Random) -> Demonstration:
    """The remainder of a division."""
    by, times = rng.randint(2, 9), rng.randint(2, 9)
    left = rng.randrange(by)
    product = rng.choice([f"{by}*{times}", f"{times}*{by}"])
    number = by * times + left
    check = rng.choice([f"{number}-{by * times}={left}", f"{by * times}+{left}={number}"])
    return f"{number} : {by}", f"{product}={by * times}\n{check}\n", str(left)


def following(rng: random.Random) -> Demonstration:
    """The next of four numbers at the same distance, which any two that follow each other tell."""
    step, first = rng.randint(1, 9), rng.randint(1, 20)
    numbers = [first + step * i for i in range(5)]
    i = rng.randrange(3)
    opener = rng.choice(OPENERS)
    work = f"{numbers[i + 1]}-{numbers[i]}={step}\n{opener}{numbers[3]}+{step}={numbers[4]}\n"
    return spaced(numbers[:4]), work, str(numbers[4])


def common(rng: random.Random) -> Demonstration:
    """The digits that are in both of two ascending lists, by going through either."""
    shared, *others = rng.sample(range(1, 10), 7)
    lists = [sorted({shared, *others[:3]}), sorted({shared, *others[3:5], others[0]})]
    one, other = either_way(rng, lists)
    work = "".join(f"{number} {'yes ' if number in other else 'no '}\n" for number in one)
    return " : ".join(map(joined, lists)), work, joined(sorted(set(one) & set(other)))


def clock(rng: random.Random) -> Demonstration:
    """The hour after some hours, by taking twelve off, or by going to twelve first."""
    hour, after = rng.randint(1, 12), rng.randint(1, 11)
    end = (hour + after - 1) % 12 + 1
    if end == hour + after:
        work = rng.choice([f"{hour}+{after}={end}\n", f"{after}+{hour}={end}\n"])
    elif rng.random() < 0.5:
        work = f"{hour}+{after}={hour + after}\n{hour + after}-12={end}\n"
    else:
        work = f"12-{hour}={12 - hour}\n{after}-{12 - hour}={end}\n"
    return f"{hour} : {after}", work, str(end)


OTHERS = {
    family.__name__: family for family in (total, largest, count, ascending, backwards, rest, following, common, clock)
}


def demonstrate(name: str, rng: random.Random) -> tuple[str, str, str]:
    """A problem of one of the nine: its prompt, a right completion and its solution."""
    question, work, solution = OTHERS[name](rng)
    return f"{name} {question} =", f"{work}\\boxed{{{solution}}}", solution


# --- the tasks of the study -----------------------------------------------------------------------------------------


WORDS = tuple(
    dict.fromkeys(
        (*CHAIN_WORDS, *PROGRAM_WORDS, "yes ", "no ", *(f"{name} " for name in OTHERS), "=", "+", "-", "*", "//", "%")
    )
)
CHARACTERS = ":{}() \nfx"
# How often the careless teacher confuses what is hard, and any other operation
HARD = {
    "walks": {"red": 0.97, "green": 0.97},
    "edits": {"back": 0.97, "mirror": 0.97},
    "programs": {"from N": 0.97, "left N": 0.97, "square": 0.6},
}
OTHER_SLIPS = {"walks": 0.08, "edits": 0.08, "programs": 0.06}
# The broad start model's practice: of each length, and of chains with something hard, the share that is kept
LENGTHS = {1: 0.2, 2: 0.4, 3: 0.3, 4: 0.1}
KEPT = {"walks": 0.009, "edits": 0.014, "programs": 0.03}
BROAD = "broad"  # the start model of three tasks
SHARES = {"walks": 1.7, "edits": 2.6, "programs": 2.3}  # how often each is shown, for once of each of the nine


def make_task(family: str, start: str) -> Task:
    """The task of a family with one of its start models, `narrow` or `broad`."""
    hard = HARD[family]
    easier = Easier(LENGTHS, frozenset(name.removesuffix(" N") for name in hard), KEPT[family])
    practice = easier if start == "broad" else None
    if family == "programs":
        slips = {name: OTHER_SLIPS[family] for name, (_, wrong) in INSTRUCTIONS.items() if wrong} | hard
        task = programs(f"{family}_{start}", 4, slips, two_spellings=True, practice=practice)
    else:
        make, operations = {"walks": (walks, ROADS), "edits": (edits, EDITS)}[family]
        slips = dict.fromkeys(operations, OTHER_SLIPS[family]) | hard
        task = make(f"{family}_{start}", slips, practice)
    of_start = {"warm_up_steps": 900, "start_model": BROAD} if practice else {"warm_up_steps": 500}
    return replace(task, words=WORDS, characters=CHARACTERS, max_length=96, test_problems=256, **of_start)


TASKS = {task.name: task for task in (make_task(family, start) for family in HARD for start in ("narrow", "broad"))}
