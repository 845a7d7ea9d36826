"""The named benchmarks on hand-made files in their schemas, scored by their rewards."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from datasets import Dataset
from transformers import Qwen3Config

from delta_trl.commands.recipe import parse_recipe
from delta_trl.evaluation.arguments import EvalArguments
from delta_trl.evaluation.benchmarks import (
    BENCHMARKS,
    BOXED,
    GROUPS,
    LONGEST,
    NUMBER,
    Benchmark,
    load_problems,
    resolve,
)
from delta_trl.scoring.checks import Reader

from ..corpus import tiny
from ..documented import DOCS


FIXTURES = Path(__file__).parents[1] / "fixtures"
SHIFT = "from typing import List\n\ndef shift(numbers: List[float], by: float):\n    return [n + by for n in numbers]"
SOLUTION = "class Solution:\n    def total(self, nums):\n        return sum(nums)"


def program(code):
    return f"I add the two.\n```python\n{code}\n```"


def boxed(answer):
    return rf"So the answer is $\boxed{{{answer}}}$."


# a right and a wrong answer to each problem of a fixture
ANSWERS = {
    "aime_2025": [(boxed(33), boxed(34)), (boxed(170), boxed(17)), (boxed(7), boxed(0))],
    "math_500": [(boxed(r"(3, \pi/2)"), boxed(r"(\pi/2, 3)")), (boxed(6), boxed("12"))],
    "gsm8k": [(boxed(36), boxed(24)), (boxed(1200), boxed(120)), (boxed(-3), boxed(3))],
    "humanevalplus": [
        (program(SHIFT), program("def shift(numbers, by):\n    return [4.0, 5.0]")),
        (
            program("def find_zero(xs): return -xs[0] / xs[1]"),
            program("def find_zero(xs):\n    xs.clear()\n    return -9.0"),
        ),
    ],
    "mbppplus": [
        (
            program("def shared(a, b):\n    return tuple(x for x in a if x in b)[: len(set(a))][: len(set(b))]"),
            program("def shared(a, b):\n    return (4, 5)"),
        ),
        # must not empty the reference's argument, which would then return None, too
        (program("from collections import Counter as count"), program("def count(x):\n    x.clear()")),
        (program("def sum(a, b): return 6"), program("def total(a, b): return 6")),  # a builtin's name
        (  # as published, it asserts nothing
            program("def check_str(text): return text.startswith('a') or None"),
            program("def check_str(text): return True"),
        ),
    ],
    "livecodebench": [
        (program("print(int(input()) ** 2)"), program("print(9)")),  # 9 passes the public test
        (program(SOLUTION), program(SOLUTION.replace("sum(nums)", "6"))),
        (program("print('hello')"), program("print('Hello')")),
    ],
    "gpqa_diamond": [(boxed("C"), boxed("A")), (boxed("D"), boxed("C"))],
    "mmlu_pro": [(boxed("D"), boxed("J")), (boxed("C"), boxed("B"))],
}
FILES = {"gpqa_diamond": "gpqa"}
TOKENIZER = tiny.tokenizer()
TOKENIZER.chat_template = tiny.CHAT
READER = Reader("m", TOKENIZER, Qwen3Config())


def arguments(**changes) -> EvalArguments:
    return EvalArguments(**{"model_name_or_path": "m", "benchmarks": ["b"], "output_dir": "o", **changes})


def of_fixture(name):
    source = FIXTURES / f"{FILES.get(name, name)}.jsonl"
    return replace(BENCHMARKS[name], source=str(source))


def problems(name, **changes):
    options = {"conversational": False, **changes}
    return load_problems(name, of_fixture(name), arguments(**options), READER)


@pytest.mark.parametrize("name", ANSWERS)
def test_benchmarks_score_as_training_does(name):
    loaded = problems(name)
    rows = loaded.rows.to_list()
    for row, right_and_wrong in zip(rows, ANSWERS[name], strict=True):
        columns = {key: [value] * 2 for key, value in row.items() if key != "prompt"}
        scores = loaded.reward(completions=right_and_wrong, **columns)
        assert scores == [1.0, 0.0], row


@pytest.mark.parametrize(
    ("name", "i", "shown"),
    [
        ("humanevalplus", 1, '```python\ndef find_zero(xs: list):\n    """Find a root of the polynomial."""\n```'),
        ("mbppplus", 1, "number of a list.\n\nYour code should pass these tests:\nassert count([1]) == {1: 1}"),
        ("livecodebench", 0, "Print its square.\n\nRead the input from standard input"),
        ("livecodebench", 1, "`nums`.\n\nComplete this code:\n\n```python\nclass Solution:\n    def total(self, nums"),
        ("livecodebench", 1, "(self, nums: List[int]) -> int:\n```"),
        ("mmlu_pro", 0, "after 7?\n\nA. 8\nB. 9\nC. 10\nD. 11\nE. 12\nF. 13\nG. 14\nH. 15\nI. 16\nJ. 17\n"),
    ],
)
def test_prompts_hold_what_an_answer_needs(name, i, shown):
    assert shown in problems(name).rows[i]["prompt"]


def test_the_template_is_that_of_the_recipes():
    recipe = yaml.safe_load(Path("recipes/Qwen3-8B-Base/deepmath_delta.yaml").read_text())
    assert recipe["prompt_template"] == BOXED
    question = "Find the sum of all integer bases $b>9$ with $b\\le 12$."
    asked = BOXED.replace("{prompt}", question)
    texts = problems("aime_2025").rows
    assert texts[0]["prompt"] == asked
    settings = problems("aime_2025").settings
    assert settings["prompt_template"] == BOXED
    assert settings["dataset_format"] == "matharena"
    assert settings["reward"] == "math_reward"
    assert settings["source"].endswith("aime_2025.jsonl")
    chats = problems("aime_2025", conversational=True).rows
    assert chats[0]["prompt"] == [{"role": "user", "content": asked}]


def test_the_shuffle_is_fixed_and_stored():
    rows = problems("gpqa_diamond").rows.to_list()
    # pinned: another order would change published numbers
    assert rows[0]["solution"] == "C"
    assert rows[1]["solution"] == "D"
    assert rows[0]["choices"][2] == "The neutron"
    for row in rows:
        labelled = zip("ABCD", row["choices"], strict=True)
        lines = [f"{label}. {choice}" for label, choice in labelled]
        assert "\n".join(lines) in row["prompt"]


def test_the_split_and_the_configuration_are_the_benchmark_s(tmp_path):
    """Also in a folder, in place of the hub."""
    for split in ("train", "test"):
        row = {"problem": split, "answer": "2"}
        Dataset.from_list([row]).to_json(tmp_path / f"{split}.jsonl")

    def loaded(name):
        benchmark = replace(BENCHMARKS[name], source=str(tmp_path))
        options = arguments(prompt_template="{prompt}", conversational=False)
        return load_problems(name, benchmark, options, READER).rows["prompt"][:]

    assert loaded("aime_2025") == ["train"]
    assert loaded("math_500") == ["test"]
    with pytest.raises(ValueError, match="'main' not found"):
        loaded("gsm8k")


def test_options_of_files_are_not_for_named_benchmarks():
    options = {"dataset_format": "gsm8k", "column_mapping": {"prompt": "question"}}
    assert problems("aime_2025", **options).rows.to_list() == problems("aime_2025").rows.to_list()


def test_prompts_are_made_as_the_model_was_trained():
    options = {"prompt_template": "Q: {prompt}", "system_prompt": "Be brief.", "conversational": None}
    loaded = problems("aime_2025", **options)
    system, asked = loaded.rows[1]["prompt"]
    assert system == {"role": "system", "content": "Be brief."}
    assert asked == {"role": "user", "content": "Q: How many diagonals has a convex polygon with $20$ sides?"}
    assert loaded.settings["prompt_template"] == "Q: {prompt}"
    assert loaded.settings["system_prompt"] == "Be brief."
    assert loaded.settings["conversational"]


def test_without_a_chat_template_prompts_stay_texts():
    reader = replace(READER, processor=tiny.tokenizer())
    loaded = load_problems("aime_2025", of_fixture("aime_2025"), arguments(), reader)
    assert loaded.rows[1]["prompt"].startswith("How many diagonals")


# --- names ---


def test_benchmarks_are_those_of_the_documentation():
    """Their data, split, reward and size."""
    found = {}
    for line in (DOCS / "evaluation.md").read_text().split("| name | ")[1].splitlines()[2:]:
        if not line:
            break
        names, data, split, reward = line.strip("| ").split(" | ")
        source, *config = re.findall("`(.*?)`", data)
        size = re.search(r"sample of (\d+)", data)
        for name in re.findall("`(.*?)`", names):
            of_name = source.replace("<name>", name)
            found[name] = (of_name, *(config or [None]), split, reward.strip("`"), size and int(size[1]))
    ours = {}
    for name, one in BENCHMARKS.items():
        reward = "code_reward" if name in GROUPS["paper_code"] else "math_reward"
        ours[name] = (one.source, one.config, one.split, reward, one.num_problems)
    assert ours == found
    assert GROUPS["paper_math"] == list(found)[:7]
    assert set(GROUPS["paper_out_of_domain"]) == {"gpqa_diamond", "mmlu_pro"}


def test_a_name_resolves_to_a_benchmark_a_group_or_a_file():
    of_paper = list(BENCHMARKS)[:7]
    assert list(resolve(["paper_math", "gsm8k"])) == [*of_paper, "gsm8k"]
    chosen = resolve(["aime_2025=/data/aime.parquet", "gsm8k=org/mirror", "my/k=8.jsonl"])
    found = {name: (one.source, one.format) for name, one in chosen.items()}
    assert found == {
        "aime_2025": ("/data/aime.parquet", "matharena"),
        "gsm8k": ("org/mirror", "gsm8k"),
        "k=8": ("my/k=8.jsonl", None),
    }
    with pytest.raises(ValueError, match="'test'"):
        resolve(["a/test.jsonl", "b/test.jsonl"])
    with pytest.raises(ValueError, match="'gsm8k' is named twice"):
        resolve(["gsm8k", "paper_math", "gsm8k=org/mirror"])
    for misspelt, meant in (("amie2024=x", "aime_2024"), ("paper_maths", "paper_math")):
        with pytest.raises(ValueError, match=f"'{meant}'.*Expected one of aime_2024, .*paper_out_of_domain"):
            resolve([misspelt])


def test_greedy_samples_of_a_problem_are_all_equal_and_one_is_drawn():
    greedy = {"temperature": 0.0, "num_generations": 4}
    for use_vllm in (False, True):
        assert arguments(**greedy, use_vllm=use_vllm).num_generations == 1


@pytest.mark.parametrize("name", ["column_mapping", "chat_template_kwargs", "vllm_kwargs"])
def test_a_mapping_may_be_a_text_or_nothing(name):
    """As files give it."""
    for given, read in (("{a: 1}", {"a": 1}), (None, {})):
        options = arguments(**{name: given})
        assert getattr(options, name) == read


# --- which problems ---


@pytest.fixture
def own(tmp_path):
    """Load a file with these rows."""

    def load(rows, reader=READER, **changes):
        path = tmp_path / "own.jsonl"
        Dataset.from_list(rows).to_json(path)
        return load_problems("own", Benchmark(str(path)), arguments(**changes), reader)

    return load


def test_a_fixed_sample_of_the_problems_with_an_answer(own):
    """A missing answer is not the text "None"."""
    answers = [None, *range(2, 51)]
    rows = [{"problem": f"{i}+1=", "answer": answer} for i, answer in enumerate(answers)]
    sampled = own(rows, dataset_format="matharena", num_problems=10)
    chosen = sampled.rows
    # pinned: another sample would change published numbers
    numbers = [4, 18, 21, 24, 26, 27, 28, 32, 33, 34]
    assert chosen[NUMBER][:] == numbers
    assert chosen["prompt"][:] == [f"{number - 1}+1=" for number in numbers]
    assert chosen["solution"][:] == [str(number) for number in numbers]
    assert sampled.settings["left_out"] == 1


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        (None, 2),
        (1, 1),
        (3, 3),
        (4, 3),
    ],
)
def test_the_size_of_a_benchmark_is_that_asked_for(asked, numbers):
    """Or its own."""
    benchmark = replace(of_fixture("aime_2025"), num_problems=2)
    loaded = load_problems("aime_2025", benchmark, arguments(num_problems=asked), READER)
    assert len(loaded.rows) == loaded.settings["num_problems"] == numbers


def test_golds_that_cannot_be_used_are_warned_of(own, caplog):
    golds = [r"\begin{tikzpicture}"] * 2 + ["2"] * 9 + [" "] * 5  # the last are left out before
    own([{"prompt": "1+1=", "solution": gold} for gold in golds])
    assert "own: math_reward cannot use 2 of 11 golds" in caplog.text
    assert caplog.text.count("cannot use") == 1


@pytest.mark.parametrize(
    ("context", "longest"),
    [
        (5, 1),
        (LONGEST + 4, LONGEST),
        (LONGEST + 5, LONGEST),
    ],
)
def test_completions_may_be_as_long_as_the_context_allows(own, context, longest):
    reader = replace(READER, config=Qwen3Config(max_position_embeddings=context))
    row = {"prompt": "1+1=", "solution": "2"}
    assert own([row], reader).settings["max_completion_length"] == longest


def test_a_prompt_that_fills_the_context_is_refused(own):
    reader = replace(READER, config=Qwen3Config(max_position_embeddings=4))
    with pytest.raises(ValueError, match="leaves no room"):
        own([{"prompt": "1+1=", "solution": "2"}], reader)


def test_a_column_that_becomes_tests_is_graded_by_them(own):
    row = {"prompt": "1+1=", "cases": '{"inputs": ["1"], "outputs": ["1"]}'}
    assert own([row], column_mapping={"cases": "tests"}).settings["reward"] == "code_reward"


def gives_too_few(completions, **kwargs):
    return []


def test_what_a_reward_returns_is_checked_as_in_training(own):
    reward = own([{"prompt": "1+1="}], reward=f"{__name__}.gives_too_few").reward
    with pytest.raises(ValueError, match="gives_too_few' returned"):
        reward(completions=["2"])


def test_where_an_evaluation_runs_and_writes_is_no_setting(own):
    row = {"prompt": "1+1=", "solution": "2"}
    elsewhere = own([row], output_dir="elsewhere", use_cpu=True, benchmarks=["own.jsonl", "gsm8k"])
    assert elsewhere.settings == own([row]).settings


def test_the_hash_of_the_problems_is_of_all_columns_but_not_of_the_template(own):
    """A reward may read any of them."""
    row = {"prompt": "1+1=", "solution": "2", "tolerance": 0, "date": "2026-01-02 03:04:05"}  # which is read as one
    contents = [
        [row],
        [row, row],
        [row | {"tolerance": 1}],
        [row | {"prompt": "2="}],
    ]
    hashes = {own(rows).settings["problems"] for rows in contents}
    assert len(hashes) == 4
    in_reverse = dict(reversed(row.items()))
    assert own([in_reverse]).settings["problems"] in hashes
    of_chats = own([row], conversational=True, prompt_template="{prompt}!")
    assert of_chats.settings["problems"] in hashes


# --- a recipe's own evaluation set ---


def test_the_evaluation_set_brings_its_own_format(tmp_path):
    from delta_trl.commands.train import build

    recipe = tiny.recipe(
        tmp_path,
        dataset_name=str(FIXTURES / "deepmath.jsonl"),
        dataset_format="deepmath",
        reward_funcs=["math_reward"],
        eval_strategy="steps",
        eval_dataset_name=str(FIXTURES / "aime_2025.jsonl"),
    )
    mapping = "{problem: prompt, answer: solution}"
    trainer = build(*parse_recipe(["--config", recipe, "--eval_column_mapping", mapping]))
    trained_on = trainer.train_dataset
    assert trained_on["solution"][:] == ["3", "Yes", "1", r"\pm \sqrt{2}"]
    assert trained_on["prompt"][1] == "Is every subgroup of an abelian group normal?"
    assert trainer.eval_dataset["solution"][:] == [33, 170, 7]
    # the training set's format is not taken for the other's
    with pytest.raises(ValueError, match="has no column 'prompt'"):
        build(*parse_recipe(["--config", recipe]))
