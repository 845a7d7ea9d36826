"""Checks that a dataset has the columns that its rewards need."""

import inspect
from collections.abc import Callable

from datasets import Dataset


# What TRL passes to every reward function, besides the dataset's columns
FROM_TRAINER = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
NOT_PASSED = {"prompt", "completion"}  # columns that TRL keeps from rewards
TEXTS = ("string", "large_string")
NUMBERS = ("int64", "double")


def check_columns(dataset: Dataset, reward_funcs: list[Callable], names: list[str], name: str) -> None:
    """
    Raise `ValueError` as [`check_reward_columns`], and for golds of our rewards that Arrow may have changed.

    Arrow gives all rows of a column one type: in `tests`, integers beside decimals become decimals, and all dicts get
    the same keys. In a JSON file, texts that all look like dates become dates.
    """
    check_reward_columns(dataset.column_names, reward_funcs, names)
    for reward, column, kinds in (("math_reward", "solution", TEXTS + NUMBERS), ("code_reward", "tests", TEXTS)):
        if reward in names and str(kind := dataset.data.schema.field(column).type) not in (*kinds, "null"):
            raise ValueError(
                f"{name}, column {column!r}: expected texts, got {kind}, to which Arrow may have changed them. Save "
                f"{'the tests of each row as a JSON text' if column == 'tests' else 'the data as Parquet'}."
            )


def check_reward_columns(columns: list[str], reward_funcs: list[Callable], names: list[str]) -> None:
    """Raise `ValueError` if a reward function cannot be called with what TRL passes and the dataset's columns."""
    passed = dict.fromkeys([*FROM_TRAINER, *(column for column in columns if column not in NOT_PASSED)])
    for reward, name in zip(reward_funcs, names, strict=True):
        try:
            signature = inspect.signature(reward)
        except (ValueError, TypeError):  # builtins may have no signature
            continue
        try:
            signature.bind(**passed)
        except TypeError as error:
            raise ValueError(
                f"The reward {name!r}: {error}. It is called with {', '.join(passed)}. A column can be renamed, "
                "`column_mapping: {answer: solution}`; `**kwargs` takes what a function does not need."
            ) from error
