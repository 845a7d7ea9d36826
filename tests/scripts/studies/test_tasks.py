"""The tasks: their teachers, their rewards, their tokens, and where a completion goes wrong."""

import json
import random
import re

import pytest

from delta_trl.rewards import code_reward
from delta_trl.sandbox import Sandbox
from scripts.studies.tasks import OTHER_STARTS, TASKS, addition, first_mistake, language, make_problems, right_tokens


@pytest.mark.parametrize("task", (TASKS | OTHER_STARTS).values(), ids=lambda task: task.name)
def test_a_careful_teacher_is_always_right_and_the_careless_one_mostly_not(task):
    if task.reward is code_reward:
        Sandbox()
    rng = random.Random(0)
    _, test = make_problems(task)
    problems = test[:50]
    names = [name for name in problems[0] if name != "prompt"]
    columns = {name: [problem[name] for problem in problems] for name in names}

    careless = [task.demonstrate(problem, rng) for problem in problems]
    grades = task.reward(careless, **columns)
    most = 0.15 if task.name == "sparse" else 0.6
    assert 0 < sum(grades) < most * len(problems)

    careful = []
    for problem, text, grade in zip(problems, careless, grades, strict=True):
        right = right_tokens(task, problem)
        mistake = first_mistake(right, tokens_of(task, text))
        assert grade == 1 or mistake is not None
        careful.append("".join(rng.choice(tokens) for tokens in right[:-1]))
    assert task.reward(careful, **columns) == [1.0] * len(problems)


def tokens_of(task, text: str) -> list[str]:
    return [*re.findall(task.pattern, text), "<eos>"]


def test_first_mistakes_by_hand():
    task = addition(digits=3, words_per_line=1)
    right = right_tokens(task, {"prompt": "345+567="})
    lines = [
        "well ones 5+7=12 write 2 carry 1",
        "so tens 4+6+1=11 write 1 carry 1",
        "so hundreds 3+5+1=9 write 9 carry 0",
        "\\boxed{912}",
    ]
    tokens = tokens_of(task, "\n".join(lines))

    assert first_mistake(right, tokens) is None
    cut_off = tokens[:20]
    assert first_mistake(right, cut_off) is None
    goes_on = [*tokens, "1"]
    assert first_mistake(right, goes_on) == len(tokens)
    other_carry = [*tokens[:11], "0", *tokens[12:]]  # of the first line
    assert first_mistake(right, other_carry) == 11
    ends_early = [*tokens[:3], "<eos>"]
    assert first_mistake(right, ends_early) == 3


# --- of the language model ---


def read_problems(task: str, split: str) -> list[dict]:
    file = language.FOLDER / f"{task}_{split}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("task", language.TASKS)
def test_the_recipe_s_problems_are_these_and_right(task):
    train = read_problems(task, "train")
    test = read_problems(task, "test")
    assert len(train) == language.TRAIN_PROBLEMS
    assert len(test) == language.TEST_PROBLEMS
    both = train + test
    assert both == language.make_rows(language.TASKS[task])

    first = train[0]["prompt"]
    examples = first[1:-1:2]
    questions = [message["content"] for message in examples]
    for row in both:
        question = row["prompt"][-1]["content"]
        assert row["solution"] == solution_by_hand(task, question)
        questions.append(question)
    assert len(set(questions)) == len(questions)


def solution_by_hand(task: str, question: str) -> str:
    if task == "sums":
        summands = map(int, question.split(" + "))
        return str(sum(summands))
    fruits = question.split(", ")
    return max(fruits, key=fruits.count)
