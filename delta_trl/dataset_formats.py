"""Named dataset formats: how each public source's rows become `prompt` and `solution` or `tests`."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from .rewards.extraction import extract_gold


class CellError(ValueError):
    """A cell of a row that is not what its column should hold."""

    def __init__(self, column: str, expected: str, value):
        shown = repr(value)
        super().__init__(f"expected {expected}, got {shown if len(shown) <= 80 else shown[:77] + '...'}")
        self.column = column


@dataclass(frozen=True)
class DatasetFormat:
    """
    The schema of a public dataset.

    Args:
        source: id on the hub, for error messages and documentation.
        columns: the columns that are read; the others are dropped unseen.
        gold: the column that `convert` writes beside `prompt`: `solution` or `tests`.
        convert: from a row to `{"prompt": …, gold: …}`, the gold `None` if the row has none that can be used. Raises
            `CellError` on a malformed row.
        keep: columns passed on unchanged, to rewards and logs.
        read_columns: read only `columns` from the hub's Parquet files, where the others are large.
        only: a column and the value that its rows must have; the source also holds other kinds of rows.
    """

    source: str
    columns: tuple[str, ...]
    gold: str
    convert: Callable[[dict], dict]
    keep: tuple[str, ...] = ()
    read_columns: bool = False
    only: tuple[str, str] | None = None


def _text(row: dict, column: str) -> str:
    if not isinstance(row[column], str) or not row[column].strip():
        raise CellError(column, "a text", row[column])
    return row[column]


def _gold_text(row: dict, column: str) -> str | None:
    """A gold that is the whole cell, or `None` if there is none."""
    if row[column] is not None and not isinstance(row[column], str):
        raise CellError(column, "a text", row[column])
    return extract_gold(row[column] or "") or None


def _deepmath(row: dict) -> dict:
    return {"prompt": _text(row, "question"), "solution": _gold_text(row, "final_answer")}


def _dapo_math(row: dict) -> dict:
    return {"prompt": _text(row, "prompt"), "solution": _gold_text(row, "solution")}


def _gsm8k(row: dict) -> dict:
    marked = "####" in (row["answer"] or "")  # without it, the text is reasoning without its result
    return {"prompt": _text(row, "question"), "solution": _gold_text(row, "answer") if marked else None}


def _math(row: dict) -> dict:
    boxed = "\\boxed" in (row["solution"] or "") or "\\fbox" in (row["solution"] or "")
    return {"prompt": _text(row, "problem"), "solution": _gold_text(row, "solution") if boxed else None}


def _eurus_code(row: dict) -> dict:
    if not isinstance(row["reward_model"], dict):
        raise CellError("reward_model", "a mapping with `ground_truth`", row["reward_model"])
    return {"prompt": check_prompt(row["prompt"], "prompt"), "tests": _tests(row["reward_model"].get("ground_truth"))}


def _tests(ground_truth: str | None) -> str | None:
    """The JSON text of {inputs, outputs, optional fn_name} if it holds at least one test; it stays a text because the
    types of inputs differ from row to row."""
    try:
        tests = json.loads(ground_truth or "")
    except (TypeError, ValueError):
        return None
    if not isinstance(tests, dict):
        return None
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    complete = isinstance(inputs, list) and isinstance(outputs, list) and 0 < len(inputs) == len(outputs)
    return ground_truth if complete else None


def check_prompt(prompt, column: str) -> str | list[dict]:
    """Return `prompt` if it is a text or a list of chat messages. Raises `CellError` if it is neither."""
    if isinstance(prompt, str) and prompt.strip():
        return prompt
    if isinstance(prompt, list) and prompt and all(_is_message(message) for message in prompt):
        return prompt
    raise CellError(column, "a text, or a list of messages {role, content}", prompt)


def _is_message(message) -> bool:
    # `content` may also be a list of parts, as in multimodal prompts
    return isinstance(message, dict) and isinstance(message.get("role"), str) and bool(message.get("content"))


FORMATS = {
    "deepmath": DatasetFormat(
        source="zwhe99/DeepMath-103K",
        columns=("question", "final_answer", "difficulty", "topic"),
        gold="solution",
        convert=_deepmath,
        keep=("difficulty", "topic"),
        read_columns=True,  # three worked solutions a row make up most of its 2 GB
    ),
    "dapo_math": DatasetFormat(
        source="open-r1/DAPO-Math-17k-Processed",
        columns=("prompt", "solution"),
        gold="solution",
        convert=_dapo_math,
    ),
    "gsm8k": DatasetFormat(
        source="openai/gsm8k",
        columns=("question", "answer"),
        gold="solution",
        convert=_gsm8k,
    ),
    "math": DatasetFormat(
        source="DigitalLearningGmbH/MATH-lighteval",
        columns=("problem", "level", "type", "solution"),
        gold="solution",
        convert=_math,
        keep=("level", "type"),
    ),
    "eurus_code": DatasetFormat(
        source="PRIME-RL/Eurus-2-RL-Data",
        columns=("prompt", "ability", "reward_model"),
        gold="tests",
        convert=_eurus_code,
        only=("ability", "code"),
    ),
}
