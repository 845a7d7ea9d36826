"""The tasks: their teachers, their rewards, their tokens, and where a completion goes wrong."""

import ast
import itertools
import json
import random
import re
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoTokenizer

from delta_trl.rewards import code_reward, math_reward
from delta_trl.sandbox import Sandbox
from scripts.studies.tasks import OTHER_STARTS, TASKS, addition, first_mistake, language, make_problems, right_tokens
from scripts.studies.tasks.models import demonstrations, tokenizer_of


MODELS = Path(__file__).parents[3] / "scripts" / "studies" / "models"
EVERY = pytest.mark.parametrize("task", (TASKS | OTHER_STARTS).values(), ids=lambda task: task.name)


@EVERY
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


@EVERY
def test_problems_differ_and_the_tokenizer_restores_demonstrations(task):
    train, test = make_problems(task)
    assert len({problem["prompt"] for problem in train + test}) == len(train) + len(test)
    tokenizer, rng = tokenizer_of(task), random.Random(0)
    for problem in test[:50]:
        for text in (problem["prompt"], task.demonstrate(problem, rng)):
            ids = tokenizer(text).input_ids
            assert tokenizer.decode(ids) == text
            assert len(ids) < task.max_completion_length
        assert len(tokenizer(problem["prompt"]).input_ids) + task.max_completion_length <= task.max_length
    if task.reward is code_reward:
        ast.parse(task.demonstrate(test[0], rng))


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_the_shipped_models_are_of_the_tasks(task):
    assert AutoTokenizer.from_pretrained(MODELS / task.name).get_vocab() == tokenizer_of(task).get_vocab()
    assert AutoConfig.from_pretrained(MODELS / task.name).max_position_embeddings == task.max_length


@EVERY
def test_warm_up_shows_no_test_problem_and_practice_is_right_and_mostly_easier(task):
    test = {problem["prompt"]: problem for problem in make_problems(task)[1]}
    shown = list(itertools.islice(demonstrations(task, seed=0), 500))
    assert not test.keys() & {prompt for prompt, _ in shown}
    wrong = 0
    for prompt, text in shown:
        wrong += first_mistake(right_tokens(task, {"prompt": prompt}), tokens_of(task, text)) is not None
    if task.practice is None:
        assert wrong > 200
    else:
        longest = max(map(len, test))
        assert wrong == 0
        assert sum(len(prompt) == longest for prompt, _ in shown) < 50


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
def test_the_recipe_s_problems_are_these(task):
    files = [language.FOLDER / f"{task}_{split}.jsonl" for split in ("train", "test")]
    train, test = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
    assert (len(train), len(test)) == (language.TRAIN_PROBLEMS, language.TEST_PROBLEMS)
    assert train + test == language.make_rows(language.TASKS[task])
    questions = [row["prompt"][-1]["content"] for row in train + test]
    examples = [message["content"] for message in train[0]["prompt"][1:-1:2]]
    assert len(examples) == language.TASKS[task].examples
    assert len({*questions, *examples}) == len(questions) + len(examples)


@pytest.mark.parametrize("task", language.TASKS)
def test_solutions_and_worked_examples_are_right(task):
    rows = language.make_rows(language.TASKS[task])
    for row in rows:
        assert row["solution"] == solution_by_hand(task, row["prompt"][-1]["content"])
    for question, answer in zip(rows[0]["prompt"][1:-1:2], rows[0]["prompt"][2:-1:2], strict=True):
        assert math_reward([answer["content"]], [solution_by_hand(task, question["content"])]) == [1.0]


def solution_by_hand(task: str, question: str) -> str:
    if task == "sums":
        return str(sum(map(int, question.split(" + "))))
    fruits = question.split(", ")
    return max(fruits, key=fruits.count)
