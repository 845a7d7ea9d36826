"""Two small tasks with verifiable rewards for scripts/study.py and scripts/stability.py, and their warmed-up models.

`arithmetic`: add two numbers of two digits, in sentences that are mostly boilerplate. `math_reward` reads the box.

    47+85=   ->  well now let us carefully look at the next column and add ones 7+5=12 write 2 carry 1
                 so then let me carefully look at the first column and sum tens 4+8+1=13 write 3 carry 1
                 \\boxed{132}

`programs`: write the Python function that a chain of three instructions describes. `code_reward` runs hidden tests.

    take 3 ; square ; left 7 :   ->  def f(x):
                                         x = x - 3
                                         x = x * x
                                         x = x % 7
                                         return x

The warm-up is supervised, on demonstrations by a careless teacher, who forgets most carries, miscounts, and confuses
instructions; about three in ten of its demonstrations are right. No test problem is shown. Everything is seeded;
a model takes about a minute on one core:

    python scripts/study_tasks.py             # recipes/study/{arithmetic,programs}
"""

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import make_quickstart_model
import torch
from transformers import PreTrainedTokenizerFast

from delta_trl.rewards import code_reward, math_reward


FOLDER = Path(__file__).resolve().parents[1] / "recipes" / "study"
TRAIN_PROBLEMS, TEST_PROBLEMS = 3000, 512
# Boilerplate of the arithmetic task; where there are two words, either is used, for no reason.
FILLER = [
    ("well", "so"), ("now", "then"), ("let",), ("us", "me"), ("carefully", "slowly"), ("look",), ("at",), ("the",),
    ("next", "first"), ("column", "place"), ("and",), ("add", "sum"), ("these", "those"), ("two",),
    ("digits", "figures"), ("from", "of"), ("both",), ("given", "stated"), ("numbers", "terms"), ("one",), ("by",),
    ("one",), ("in", "with"), ("full",),
]  # fmt: skip
FORGOTTEN_CARRIES = 0.75  # of all carries
MISCOUNTED_SUMS = 0.1  # of all columns, by one
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
BATCH_SIZE = 64  # of the warm-up
TEST_INPUTS = [-7, -1, 0, 2, 5, 13, 30]


@dataclass(frozen=True)
class Task:
    """A task: problems, the careless teacher, the reward that verifies, and what the tokenizer must know."""

    name: str
    make_problem: Callable[[random.Random], dict]  # a row with "prompt" and the reward's column
    demonstrate: Callable[[dict, random.Random], str]
    reward: Callable
    words: tuple[str, ...]  # tokens of more than one character
    max_completion_length: int


def arithmetic(words_per_line: int = 12) -> Task:
    """The arithmetic task with a number of boilerplate words per line, at most `len(FILLER)`."""

    def make_problem(rng: random.Random) -> dict:
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        return {"prompt": f"{a}+{b}=", "solution": str(a + b)}

    def demonstrate(problem: dict, rng: random.Random) -> str:
        a, b = map(int, problem["prompt"].rstrip("=").split("+"))
        lines, digits, carry = [], [], 0
        for place, name in enumerate(["ones", "tens"]):
            x, y = a // 10**place % 10, b // 10**place % 10
            total = x + y + carry
            if rng.random() < MISCOUNTED_SUMS:
                total = max(total + rng.choice([-1, 1]), 0)
            summands = f"{x}+{y}" if place == 0 else f"{x}+{y}+{carry}"
            carry = 0 if rng.random() < FORGOTTEN_CARRIES else total // 10
            digits.append(str(total % 10))
            filler = "".join(rng.choice(choice) + " " for choice in FILLER[:words_per_line])
            lines.append(f"{filler}{name} {summands}={total} write {total % 10} carry {carry}\n")
        return "".join(lines) + f"\\boxed{{{'1' if carry else ''}{''.join(reversed(digits))}}}"

    filler = sorted({f"{word} " for choice in FILLER[:words_per_line] for word in choice})
    return Task(
        name="arithmetic" if words_per_line == 12 else f"arithmetic-{words_per_line}-words",
        make_problem=make_problem,
        demonstrate=demonstrate,
        reward=math_reward,
        words=("ones ", "tens ", " write ", " carry ", "\\boxed", *filler),
        max_completion_length=2 * words_per_line + 36,
    )


def programs() -> Task:
    def make_problem(rng: random.Random) -> dict:
        outputs = []
        while len(set(outputs)) < 4:  # or wrong programs would pass
            chain = [rng.choice(list(INSTRUCTIONS)).replace("N", str(rng.randint(2, 9))) for _ in range(3)]
            outputs = list(TEST_INPUTS)
            for instruction in chain:
                outputs = [eval(meaning(instruction)[0], {"x": x}) for x in outputs]
        tests = {"fn_name": "f", "inputs": [[x] for x in TEST_INPUTS], "outputs": outputs}
        return {"prompt": " ; ".join(chain) + " :", "tests": json.dumps(tests)}

    def demonstrate(problem: dict, rng: random.Random) -> str:
        lines = ["def f(x):\n"]
        for instruction in problem["prompt"].removesuffix(" :").split(" ; "):
            right, wrong, confused = meaning(instruction)
            expression = wrong if rng.random() < confused else right
            if rng.random() < MISREAD_NUMBERS:
                expression = "".join(str(max(int(c) - 1, 2)) if c.isdigit() else c for c in expression)
            lines.append(f"    x = {expression}\n")
        return "".join(lines) + "    return x"

    return Task(
        name="programs",
        make_problem=make_problem,
        demonstrate=demonstrate,
        reward=code_reward,
        words=(
            *(
                "add ",
                "times ",
                "take ",
                "from ",
                "over ",
                "left ",
                "square",
                "double",
                " ; ",
                " :",
                "def ",
                "return ",
            ),
            *("    ", " = ", " + ", " * ", " - ", " // ", " % "),
        ),
        max_completion_length=40,
    )


def meaning(instruction: str) -> tuple[str, str | None, float]:
    """The expression that an instruction means, what it is confused with, and how often."""
    name, _, number = instruction.partition(" ")
    key = f"{name} N" if number else name
    right, wrong = (e and e.replace("N", number) for e in INSTRUCTIONS[key])
    return right, wrong, CONFUSED.get(key, 0.0)


TASKS = {task.name: task for task in (arithmetic(), programs())}


def make_problems(task: Task) -> tuple[list[dict], list[dict]]:
    """Training and test problems, all different; always the same ones."""
    rng, problems = random.Random(0), {}
    while len(problems) < TRAIN_PROBLEMS + TEST_PROBLEMS:
        problem = task.make_problem(rng)
        problems[problem["prompt"]] = problem
    problems = list(problems.values())
    return problems[:TRAIN_PROBLEMS], problems[TRAIN_PROBLEMS:]


def make_tokenizer(task: Task) -> PreTrainedTokenizerFast:
    """One token for each word, which carries its spaces, and for each other character."""
    vocabulary = ["<pad>", "<eos>", *"0123456789", *dict.fromkeys(task.words)]
    vocabulary += ["+", "=", "{", "}", "\n"] if task.reward is math_reward else ["f", "x", "(", ")", ":", "\n"]
    words = "|".join(sorted(map(re.escape, task.words), key=len, reverse=True))
    return make_quickstart_model.make_tokenizer(vocabulary, words + r"|[\s\S]")


def demonstrations(task: Task, excluded: set[str], seed: int) -> Iterator[tuple[str, str]]:
    rng = random.Random(seed)
    while True:
        problem = task.make_problem(rng)
        if problem["prompt"] not in excluded:
            yield problem["prompt"], task.demonstrate(problem, rng)


def make(task: Task, folder: Path, steps: int = 400, seed: int = 0) -> None:
    """Warm a model up for a task and save it with its tokenizer."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # the order of summation, and with it the weights, depends on their number
    _, test = make_problems(task)
    tokenizer = make_tokenizer(task)
    model = make_quickstart_model.make_model(tokenizer, width=64, layers=2)
    make_quickstart_model.warm_up(
        model,
        tokenizer,
        demonstrations(task, {problem["prompt"] for problem in test}, seed),
        steps=steps,
        batch_size=BATCH_SIZE,
        learning_rate=5e-3,
        description=f"{task.name}: warm-up",
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, default=FOLDER)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for task in TASKS.values():
        make(task, args.output_dir / task.name, args.steps, args.seed)


if __name__ == "__main__":
    main()
