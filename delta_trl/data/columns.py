"""Checks that a dataset has what its rewards need: columns, and golds that they can use."""

import inspect
import math
from collections.abc import Callable
from typing import Any

from datasets import Dataset


# Columns that rewards check answers against: a row without one cannot be graded
GOLD_COLUMNS = ("solution", "tests")
# What TRL passes to every reward function, besides the dataset's columns
FROM_TRAINER = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
NOT_PASSED = {"prompt", "completion"}  # columns that TRL keeps from rewards
# The columns that our rewards check answers against, the types that these may have in Arrow, and what to write instead
TEXTS = ("string", "large_string", "null")
WHOLE_NUMBERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
GOLDS = {
    "math_reward": ("solution", (*TEXTS, *WHOLE_NUMBERS, "double"), "one text of the reference answer"),
    "code_reward": ("tests", TEXTS, "a JSON text of the tests"),
}
EXACT = 2**53  # from here on, a float does not hold every whole number
OF_CHATS = ("think_format_reward", "accuracy_reward", "reasoning_accuracy_reward")  # of TRL
SAMPLE, UNUSABLE = 100, 0.1  # golds to try, and the share that may be unusable without a warning


def check_columns(dataset: Dataset, reward_funcs: list[Callable], names: list[str], name: str) -> None:
    """
    Check that reward functions can be called with what TRL passes and the dataset's columns.

    Raises:
        ValueError: If a function cannot be called so, and for golds of our rewards that Arrow may have changed.

    Arrow gives all rows of a column one type: in `tests`, integers beside decimals become decimals, and all dicts get
    the same keys. In a JSON file, texts that all look like dates become dates, and whole numbers become decimals if
    one of them has more than 64 bits.
    """
    columns = [column for column in dataset.column_names if column not in NOT_PASSED]
    passed = dict.fromkeys([*FROM_TRAINER, *columns])
    for reward, called in zip(reward_funcs, names, strict=True):
        try:
            inspect.signature(reward).bind(**passed)
        except TypeError as error:
            raise ValueError(
                f"The reward {called!r}: {error}. It is called with {', '.join(passed)}. Rename a column, or give the "
                "function `**kwargs` for what it does not need."
            ) from error
        if called in GOLDS:
            _check_type(dataset, *GOLDS[called], name)


def _check_type(dataset: Dataset, column: str, types: tuple[str, ...], text: str, name: str) -> None:
    """Raise `ValueError` if the golds in a column of one of our rewards are not what their file had."""
    kind = str(dataset.data.schema.field(column).type)
    if kind not in types:
        raise ValueError(
            f"{name}, column {column!r}: expected texts, got {kind}. Make {text} of each row, by a `dataset_format` "
            "of your own or in the file."
        )
    if kind != "double":
        return
    for gold in dataset[column]:
        if gold is not None and abs(gold) >= EXACT:
            raise ValueError(
                f"{name}, column {column!r}: {gold:.0f} may have lost digits, as a float has 53 bits. Save it as a "
                "text."
            )


def check_golds(dataset: Dataset, reward_funcs: list[Callable], name: str) -> list[str]:
    """
    Try a sample of the golds with our rewards, which give `None` to any answer if they cannot use its gold.

    Args:
        dataset (`Dataset`): With the columns that the rewards take.
        reward_funcs (`list[Callable]`): Of the run; those of users are not called.
        name (`str`): What the dataset is called in messages.

    Returns:
        `list[str]`: Warnings, where more than a tenth of the sample is unusable.

    Raises:
        ValueError: If all of it is, and for rewards of TRL that fail on texts.
    """
    step = math.ceil(len(dataset) / SAMPLE)
    rows = dataset.select(range(0, len(dataset), step))
    columns = {column: rows[column][:] for column in rows.column_names if column not in NOT_PASSED}
    are_texts = isinstance(rows[0].get("prompt", []), str)
    warnings = []
    for reward in reward_funcs:
        called = getattr(reward, "__name__", "")
        if are_texts and called in OF_CHATS:
            raise ValueError(
                f"{name}: the reward {called!r} reads chats, but prompts are texts. Set `conversational: true`, or "
                "make each prompt a list of messages {role, content}."
            )
        if called not in GOLDS:
            continue
        rewards = reward(completions=[""] * len(rows), **columns)
        unusable = [i for i, given in enumerate(rewards) if given is None]
        if len(unusable) <= UNUSABLE * len(rows):
            continue
        golds = columns[GOLDS[called][0]]
        problem = (
            f"{name}: {called} cannot use {len(unusable)} of {len(rows)} golds that were tried, such as "
            f"{golds[unusable[0]]!r:.80}: it gives no reward for any answer to them."
        )
        if len(unusable) == len(rows):
            raise ValueError(problem)
        warnings.append(problem)
    return warnings


def is_prompt(prompt: Any) -> bool:
    """Whether it is a text, or messages. The content of a message may be a list of parts, as in multimodal prompts."""
    if isinstance(prompt, str):
        return bool(prompt.strip())
    if not isinstance(prompt, list) or not prompt:
        return False
    return all(isinstance(message, dict) and message.get("role") and message.get("content") for message in prompt)
