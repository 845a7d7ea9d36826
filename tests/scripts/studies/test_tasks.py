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
    problems, rng = make_problems(task)[1][:50], random.Random(0)
    rows = {name: [problem[name] for problem in problems] for name in problems[0] if name != "prompt"}
    texts = [task.demonstrate(problem, rng) for problem in problems]
    careless = task.reward(texts, **rows)
    assert 0 < sum(careless) < (0.15 if task.name == "sparse" else 0.6) * len(problems)
    for problem, text, grade in zip(problems, texts, careless, strict=True):
        assert grade == 1 or first_mistake(right_tokens(task, problem), tokens_of(task, text)) is not None
    careful = ["".join(rng.choice(tokens) for tokens in right_tokens(task, problem)[:-1]) for problem in problems]
    assert task.reward(careful, **rows) == [1.0] * len(problems)


def tokens_of(task, text: str) -> list[str]:
    return [*re.findall(task.pattern, text), "<eos>"]


def test_first_mistakes_by_hand():
    task = addition(digits=3, words_per_line=1)
    right = right_tokens(task, {"prompt": "345+567="})
    text = "well ones 5+7=12 write 2 carry 1\nso tens 4+6+1=11 write 1 carry 1\nso hundreds 3+5+1=9 write 9 carry 0\n"
    tokens = tokens_of(task, text + "\\boxed{912}")
    assert first_mistake(right, tokens) is None
    assert first_mistake(right, tokens[:20]) is None  # cut off
    assert first_mistake(right, [*tokens, "1"]) == len(tokens)
    assert first_mistake(right, [*tokens[:11], "0", *tokens[12:]]) == 11  # the first line's carry
    assert first_mistake(right, [*tokens[:3], "<eos>"]) == 3


# --- of the language model ---


@pytest.mark.parametrize("task", language.TASKS)
def test_the_recipe_s_problems_are_these_and_right(task):
    files = [language.FOLDER / f"{task}_{split}.jsonl" for split in ("train", "test")]
    train, test = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
    assert (len(train), len(test)) == (language.TRAIN_PROBLEMS, language.TEST_PROBLEMS)
    assert train + test == language.make_rows(language.TASKS[task])
    questions = [message["content"] for message in train[0]["prompt"][1:-1:2]]  # the examples
    for row in train + test:
        question = row["prompt"][-1]["content"]
        questions.append(question)
        assert row["solution"] == solution_by_hand(task, question)
    assert len(set(questions)) == len(questions)


def solution_by_hand(task: str, question: str) -> str:
    if task == "sums":
        return str(sum(map(int, question.split(" + "))))
    fruits = question.split(", ")
    return max(fruits, key=fruits.count)
