"""Named dataset formats: how each public source's rows become `prompt` and `solution` or `tests`."""

import builtins
import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from ..rewards.grader.extraction import extract_gold
from .livecodebench import livecodebench_tests


class CellError(ValueError):
    """A cell does not hold what its column should."""

    def __init__(self, column: str, expected: str, value: object):
        super().__init__(f"expected {expected}, got {value!r:.80}")
        self.column = column


@dataclass(frozen=True)
class DatasetFormat:
    """
    The schema of a public dataset.

    Args:
        source (`str`): Id on the hub, for error messages and documentation.
        columns (`tuple[str, ...]`): The columns that are read; others are dropped.
        convert (`Callable[[dict], dict]`):
            Turns a row into `{"prompt": …, "solution": …}` or `{"prompt": …, "tests": …}`; the gold is `None` if the
            row has none that can be used. Raises `CellError` on a malformed row.
        keep (`tuple[str, ...]`, *optional*, defaults to `()`): Columns passed on unchanged, to rewards and logs.
        id (`str`, *optional*): The column that names a problem; it becomes `problem_id`.
        read_columns (`bool`, *optional*, defaults to `False`):
            Read only `columns` from the hub's Parquet files, because the others are large.
        only (`tuple[str, str]`, *optional*):
            A column and the value that its rows must have; the source also holds other kinds of rows.
    """

    source: str
    columns: tuple[str, ...]
    convert: Callable[[dict], dict]
    keep: tuple[str, ...] = ()
    id: str | None = None
    read_columns: bool = False
    only: tuple[str, str] | None = None


def _text(row: dict, column: str) -> str:
    if not isinstance(row[column], str) or not row[column].strip():
        raise CellError(column, "a text", row[column])
    return row[column]


def _gold_text(row: dict, column: str) -> str | None:
    """The gold in a text (see `extract_gold`), or `None` if there is none."""
    return extract_gold(_optional_text(row, column)) or None


def _optional_text(row: dict, column: str) -> str:
    if row[column] is not None and not isinstance(row[column], str):
        raise CellError(column, "a text", row[column])
    return row[column] or ""


def _answer(row: dict) -> str | None:
    """The gold in `answer`, a text or a number."""
    answer = row["answer"]
    if isinstance(answer, (int, float)) and not isinstance(answer, bool):
        if not math.isfinite(answer):
            return None
        return str(int(answer) if answer == int(answer) else answer)
    return _gold_text(row, "answer")


def _deepmath(row: dict) -> dict:
    return {"prompt": _text(row, "question"), "solution": _gold_text(row, "final_answer")}


def _dapo_math(row: dict) -> dict:
    return {"prompt": _text(row, "prompt"), "solution": _gold_text(row, "solution")}


def _gsm8k(row: dict) -> dict:
    marked = "####" in _optional_text(row, "answer")  # without it, the text is reasoning without a final answer
    return {"prompt": _text(row, "question"), "solution": _gold_text(row, "answer") if marked else None}


def _math(row: dict) -> dict:
    boxed = re.search(r"\\f?box", _optional_text(row, "solution")) is not None
    return {"prompt": _text(row, "problem"), "solution": _gold_text(row, "solution") if boxed else None}


def _eurus_code(row: dict) -> dict:
    if not isinstance(row["reward_model"], dict):
        raise CellError("reward_model", "a mapping with `ground_truth`", row["reward_model"])
    return {"prompt": check_prompt(row["prompt"], "prompt"), "tests": _tests(row["reward_model"].get("ground_truth"))}


def _tests(ground_truth: str | None) -> str | None:
    """
    The JSON text of {inputs, outputs, optional fn_name}, or `None` if it holds no test. It stays a text because the
    types of inputs differ from row to row. Rows that come from APPS have each output of a function in a list.
    """
    try:
        tests = json.loads(ground_truth or "")
    except (TypeError, ValueError):
        return None
    if not isinstance(tests, dict):
        return None
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not (isinstance(inputs, list) and isinstance(outputs, list) and 0 < len(inputs) == len(outputs)):
        return None
    if tests.get("fn_name") and all(isinstance(output, list) and len(output) == 1 for output in outputs):
        return json.dumps({**tests, "outputs": [output for (output,) in outputs]})
    return ground_truth


def _problem_and_answer(row: dict) -> dict:
    return {"prompt": _text(row, "problem"), "solution": _answer(row)}


def _humanevalplus(row: dict) -> dict:
    # HumanEval/32 as published takes the root for the coefficients, so that no right program passes
    test = _text(row, "test").replace("_poly(*candidate(*inp), inp)", "abs(_poly(list(inp[0]), candidate(*inp)))")
    tests = {"test": test, "entry_point": _text(row, "entry_point")}
    prompt = f"Complete this function:\n\n```python\n{_text(row, 'prompt').strip()}\n```"
    return {"prompt": prompt, "tests": json.dumps(tests)}


def _mbppplus(row: dict) -> dict:
    # the description alone does not name the function
    prompt = "\n".join(
        [_text(row, "prompt").strip(), "", "Your code should pass these tests:", *(row["test_list"] or [])]
    )
    # Without those in the prompt, which would earn a part of the reward by themselves
    tests = {column: row[column] for column in ("test_imports", "test" if row["test"] else "test_list")}
    if row["test"]:  # a program that empties its argument must not empty that of the reference
        test = _text(row, "test").replace("(*inp), ref_func(*inp)", "(*deepcopy(inp)), ref_func(*inp)")
        # MBPP/737, 787 and 794 as published compare, and assert nothing
        tests["test"] = test.replace("(out is not None)\n", "(out is not None)\n    assert exact_match\n")
    called = set(re.findall(r"(\w+)\(", " ".join(row["test_list"] or [])))
    if len(called) == 1 and hasattr(builtins, *called):  # MBPP/126 asks for a function `sum`
        tests["entry_point"] = called.pop()
    return {"prompt": prompt, "tests": json.dumps(tests)}


def _livecodebench(row: dict) -> dict:
    starter = row["starter_code"] or ""
    how = (
        f"Complete this code:\n\n```python\n{starter.rstrip()}\n```"
        if starter.strip()
        else "Read the input from standard input and write the answer to standard output."
    )
    return {"prompt": f"{_text(row, 'question_content').strip()}\n\n{how}", "tests": livecodebench_tests(row)}


def _choices(question: str, choices: list[str], right: int) -> dict:
    """A multiple-choice prompt."""
    lines = [f"{letter}. {choice}" for letter, choice in zip("ABCDEFGHIJ", choices, strict=False)]
    return {"prompt": "\n".join([question, "", *lines]), "solution": "ABCDEFGHIJ"[right], "choices": choices}


def _gpqa(row: dict) -> dict:
    """The right answer has a column of its own, so choices are ordered by a hash: fixed, and the same everywhere."""
    columns = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    question, (right, *others) = _text(row, "Question").strip(), [_text(row, column).strip() for column in columns]
    choices = sorted([right, *others], key=lambda choice: hashlib.sha256(f"{question}\n{choice}".encode()).digest())
    return _choices(question, choices, choices.index(right))


def _mmlu_pro(row: dict) -> dict:
    options, right = row["options"], row["answer_index"]
    if not isinstance(options, list) or not 2 <= len(options) <= 10:
        raise CellError("options", "a list of 2 to 10 choices", options)
    if not isinstance(right, int) or not 0 <= right < len(options):
        raise CellError("answer_index", f"a number from 0 to {len(options) - 1}", right)
    return _choices(_text(row, "question").strip(), [str(option).strip() for option in options], right)


def check_prompt(prompt: object, column: str) -> str | list[dict]:
    """Return `prompt` if it is a text or a list of chat messages. Raises `CellError` if it is neither."""
    if isinstance(prompt, str) and prompt.strip():
        return prompt
    if isinstance(prompt, list) and prompt and all(_is_message(message) for message in prompt):
        return prompt
    raise CellError(column, "a text, or a list of messages {role, content}", prompt)


def _is_message(message: object) -> bool:
    # `content` may also be a list of parts, as in multimodal prompts
    return isinstance(message, dict) and isinstance(message.get("role"), str) and bool(message.get("content"))


FORMATS = {
    "deepmath": DatasetFormat(
        source="zwhe99/DeepMath-103K",
        columns=("question", "final_answer", "difficulty", "topic"),
        convert=_deepmath,
        keep=("difficulty", "topic"),
        read_columns=True,  # three worked solutions a row make up most of its 2 GB
    ),
    "dapo_math": DatasetFormat(
        source="open-r1/DAPO-Math-17k-Processed",
        columns=("prompt", "solution"),
        convert=_dapo_math,
    ),
    "gsm8k": DatasetFormat(
        source="openai/gsm8k",
        columns=("question", "answer"),
        convert=_gsm8k,
    ),
    "math": DatasetFormat(
        source="DigitalLearningGmbH/MATH-lighteval",
        columns=("problem", "level", "type", "solution"),
        convert=_math,
        keep=("level", "type"),
    ),
    "eurus_code": DatasetFormat(
        source="PRIME-RL/Eurus-2-RL-Data",
        columns=("prompt", "ability", "reward_model"),
        convert=_eurus_code,
        only=("ability", "code"),
    ),
    "aime": DatasetFormat(
        source="HuggingFaceH4/aime_2024",
        columns=("id", "problem", "answer"),
        convert=_problem_and_answer,
        id="id",
    ),
    "matharena": DatasetFormat(
        source="MathArena/aime_2025 and its other competitions",
        columns=("problem_idx", "problem", "answer"),
        convert=_problem_and_answer,
        id="problem_idx",
    ),
    "math_500": DatasetFormat(
        source="HuggingFaceH4/MATH-500",
        columns=("problem", "answer", "subject", "level", "unique_id"),
        convert=_problem_and_answer,
        keep=("subject", "level"),
        id="unique_id",
    ),
    "humanevalplus": DatasetFormat(
        source="evalplus/humanevalplus",
        columns=("task_id", "prompt", "entry_point", "test"),
        convert=_humanevalplus,
        id="task_id",
    ),
    "mbppplus": DatasetFormat(
        source="evalplus/mbppplus",
        columns=("task_id", "prompt", "test_imports", "test_list", "test"),
        convert=_mbppplus,
        id="task_id",
    ),
    "livecodebench": DatasetFormat(
        source="lighteval/code_generation_lite",
        columns=(
            "question_id",
            "question_content",
            "starter_code",
            "public_test_cases",
            "private_test_cases",
            "metadata",
            "difficulty",
        ),
        convert=_livecodebench,
        keep=("difficulty",),
        id="question_id",
    ),
    "gpqa": DatasetFormat(
        source="Idavidrein/gpqa",
        columns=(
            "Record ID",
            "Question",
            "Correct Answer",
            "Incorrect Answer 1",
            "Incorrect Answer 2",
            "Incorrect Answer 3",
        ),
        convert=_gpqa,
        id="Record ID",
    ),
    "mmlu_pro": DatasetFormat(
        source="TIGER-Lab/MMLU-Pro",
        columns=("question_id", "question", "options", "answer_index", "category"),
        convert=_mmlu_pro,
        keep=("category",),
        id="question_id",
    ),
}
