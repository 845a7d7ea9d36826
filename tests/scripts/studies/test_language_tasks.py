import json

import pytest

from delta_trl.rewards import math_reward
from scripts.studies.tasks.language import FOLDER, TASKS, TEST_PROBLEMS, TRAIN_PROBLEMS, make_rows


@pytest.mark.parametrize("task", TASKS)
def test_the_recipe_s_problems_are_these(task):
    files = [FOLDER / f"{task}_{split}.jsonl" for split in ("train", "test")]
    train, test = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
    assert (len(train), len(test)) == (TRAIN_PROBLEMS, TEST_PROBLEMS)
    assert train + test == make_rows(TASKS[task])
    questions = [row["prompt"][-1]["content"] for row in train + test]
    examples = [message["content"] for message in train[0]["prompt"][1:-1:2]]
    assert len(examples) == TASKS[task].examples
    assert len({*questions, *examples}) == len(questions) + len(examples)


@pytest.mark.parametrize("task", TASKS)
def test_solutions_and_worked_examples_are_right(task):
    rows = make_rows(TASKS[task])
    for row in rows:
        assert row["solution"] == solution_by_hand(task, row["prompt"][-1]["content"])
    for question, answer in zip(rows[0]["prompt"][1:-1:2], rows[0]["prompt"][2:-1:2], strict=True):
        assert math_reward([answer["content"]], [solution_by_hand(task, question["content"])]) == [1.0]


def solution_by_hand(task: str, question: str) -> str:
    if task == "sums":
        return str(sum(map(int, question.split(" + "))))
    fruits = question.split(", ")
    return max(fruits, key=fruits.count)
