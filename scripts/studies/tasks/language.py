"""Make the problems of recipes/SmolLM2-135M: tasks that SmolLM2-135M-Instruct solves one time in four.

    python -m scripts.studies.tasks.language

Each prompt is a chat with one or two worked examples. Without them the model is right in less than 6 % of its answers.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "recipes" / "SmolLM2-135M"
MODEL = ROOT / "outputs" / "models" / "SmolLM2-135M-Instruct"  # scripts/build/language_model.py puts it there
TRAIN_PROBLEMS = 256
TEST_PROBLEMS = 128
TESTED_PROBLEMS = 64  # of these, the first: after a study's runs
PROMPTS = 8  # of a rollout batch
FRUITS = ["apple", "pear", "plum", "fig", "lemon", "grape"]


def total(rng: random.Random) -> tuple[str, str, str]:
    """Question, worked answer and solution: the sum of three digits in two steps."""
    a = rng.randint(1, 9)
    b = rng.randint(1, 9)
    c = rng.randint(1, 9)
    first = a + b
    solution = first + c
    question = f"{a} + {b} + {c}"
    steps = f"{a} + {b} = {first}. {first} + {c} = {solution}. Answer: {solution}"
    return question, steps, str(solution)


def most_frequent(rng: random.Random) -> tuple[str, str, str]:
    """Question, worked answer and solution: the one most frequent of four to six fruits, counted one by one."""
    while True:
        fruits = rng.choices(FRUITS, k=rng.randint(4, 6))
        counts = Counter(fruits)  # in the order of the question
        (winner, most), *others = counts.most_common()
        if others and most > others[0][1]:
            question = ", ".join(fruits)
            steps = [f"{fruit}: {count}" for fruit, count in counts.items()]
            steps.append(f"Answer: {winner}")
            return question, ". ".join(steps), winner


@dataclass(frozen=True)
class Task:
    name: str
    instruction: str
    examples: int
    draw: Callable[[random.Random], tuple[str, str, str]]  # question, worked answer, solution
    max_completion_length: int = 40  # tokens; a worked answer has 20 to 35


TASKS = {
    task.name: task
    for task in (
        Task("sums", "Add step by step.", 1, total),
        Task("fruits", "Count each fruit. Answer with the most frequent one.", 2, most_frequent),
    )
}


def make_rows(task: Task) -> list[dict]:
    """
    Rows with `prompt`, a chat, `solution` and `worked_answer`; the questions are distinct, and none is an example's.
    """
    rng = random.Random(0)
    drawn: dict[str, tuple[str, str]] = {}  # worked answer and solution by question
    while len(drawn) < task.examples + TRAIN_PROBLEMS + TEST_PROBLEMS:
        question, steps, solution = task.draw(rng)
        drawn[question] = steps, solution
    chat = [{"role": "system", "content": task.instruction}]
    rows = []
    for number, (question, (steps, solution)) in enumerate(drawn.items()):
        asked = {"role": "user", "content": question}
        if number < task.examples:
            chat += [asked, {"role": "assistant", "content": steps}]
        else:  # audits know by the worked answer where a completion goes wrong
            rows.append({"prompt": [*chat, asked], "solution": solution, "worked_answer": steps})
    return rows


def main() -> None:
    for name, task in TASKS.items():
        rows = [json.dumps(row) + "\n" for row in make_rows(task)]
        (FOLDER / f"{name}_train.jsonl").write_text("".join(rows[:TRAIN_PROBLEMS]))
        (FOLDER / f"{name}_test.jsonl").write_text("".join(rows[TRAIN_PROBLEMS:]))


if __name__ == "__main__":
    main()
