"""Checks that a dataset has what its rewards need: columns, and golds that they can use."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from datasets import Dataset, Value

from ..arguments.lookup import nearest
from ..rewards import CodeReward, MathReward


# The columns that our rewards check answers against: a row without one cannot be graded. By their classes: users give
# functions of their own the same names
GOLDS = {MathReward: "solution", CodeReward: "tests"}
GOLD_COLUMNS = tuple(GOLDS.values())
# What TRL passes to every reward function, besides the dataset's columns
FROM_TRAINER = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
NOT_PASSED = {"prompt", "completion"}  # columns that TRL keeps from rewards
TEXTS = (Value("string"), Value("large_string"), Value("null"))
EXACT = 2**53  # from here on, a float does not hold every whole number
OF_CHATS = ("think_format_reward", "accuracy_reward", "reasoning_accuracy_reward")  # of TRL
SAMPLE = 100  # golds to try
UNUSABLE = 0.1  # the share of them that may be unusable without a warning


def check_columns(dataset: Dataset, reward_funcs: Sequence[Callable], names: list[str], name: str) -> list[str]:
    """
    Check that reward functions can be called with what TRL passes and the dataset's columns.

    Returns:
        `list[str]`: Warnings of parameters that keep their default, though a column has nearly their name.

    Raises:
        ValueError: If a function cannot be called so, and for golds of our rewards that Arrow may have changed.
            `math_reward` itself refuses what is neither a text nor a number.

    Arrow gives all rows of a column one type: in `tests`, integers beside decimals become decimals, and all dicts get
    the same keys. In a JSON file, texts that all look like dates become dates, and whole numbers become decimals if
    one of them has more than 64 bits.
    """
    warnings = []
    columns = [column for column in dataset.column_names if column not in NOT_PASSED]
    passed = dict.fromkeys([*FROM_TRAINER, *columns])
    for reward, called in zip(reward_funcs, names, strict=True):
        signature = inspect.signature(reward)
        taken = signature.parameters.keys()
        bound = getattr(reward, "keywords", {})
        for parameter in taken - passed.keys() - bound.keys():
            near = nearest(parameter, passed.keys() - taken)
            if near:
                warnings.append(f"{name} has no column {parameter!r}{near}: {called!r} gets its default.")
        try:
            signature.bind(**passed)
        except TypeError as error:
            raise ValueError(
                f"{name}: the reward {called!r}: {error}. It is called with {', '.join(passed)}. Rename a column, or "
                "give the function `**kwargs` for what it does not need."
            ) from error
    features = dataset.features
    golds = {_gold_of(reward) for reward in reward_funcs}
    if "tests" in golds and features["tests"] not in TEXTS:
        raise ValueError(
            f"{name}, column 'tests': expected texts, got {features['tests']}. Make a JSON text of the tests of each "
            "row, by a `dataset_format` of your own or in the file."
        )
    if "solution" in golds and features["solution"] == Value("float64"):
        for gold in dataset["solution"]:
            refuse_rounded(gold, gold, f"{name}, column 'solution'")
    return warnings


def refuse_rounded(value: Any, gold: Any, where: str) -> None:
    """
    Raise `ValueError` if `value`, or one inside it, may be a rounded whole number, and a gold is it or has its text.
    Arrow reads whole numbers beside a decimal, or of more than 64 bits, as floats.
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            refuse_rounded(item, gold, where)
    elif isinstance(value, float) and abs(value) >= EXACT:
        held = str(gold)
        if str(value) in held or f"{value:.0f}" in held:
            raise ValueError(f"{where}: {value:.0f} may have lost digits, as a float has 53 bits. Save it as a text.")


def check_golds(dataset: Dataset, reward_funcs: Sequence[Callable], name: str) -> list[str]:
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
    warnings: list[str] = []
    if not len(dataset):
        return warnings
    rows = range(0, len(dataset), math.ceil(len(dataset) / SAMPLE))
    tried = len(rows)
    columns = dataset[rows]
    prompts = columns.pop("prompt", [None])
    for reward in reward_funcs:
        called = getattr(reward, "__name__", "")
        is_trls = str(getattr(reward, "__module__", "")).startswith("trl.")
        if is_trls and called in OF_CHATS and isinstance(prompts[0], str):
            raise ValueError(
                f"{name}: the reward {called!r} reads chats, but prompts are texts. Set `conversational: true`, or "
                "make each prompt a list of messages {role, content}."
            )
        gold_column = _gold_of(reward)
        if gold_column is None:
            continue
        scores = reward(completions=[""] * tried, **columns)
        unusable = [gold for gold, score in zip(columns[gold_column], scores, strict=True) if score is None]
        if len(unusable) <= UNUSABLE * tried:
            continue
        problem = (
            f"{name}: {called} cannot use {len(unusable)} of {tried} golds that were tried, such as "
            f"{unusable[0]!r:.80}: it gives no reward for any answer to them."
        )
        if len(unusable) == tried:
            raise ValueError(problem)
        warnings.append(problem)
    return warnings


def _gold_of(reward: Callable) -> str | None:
    """The column of golds that a reward of ours reads."""
    return next((column for kind, column in GOLDS.items() if isinstance(reward, kind)), None)


def check_prompt_column(dataset: Dataset, name: str) -> None:
    """Raise `ValueError` if the prompts are missing, or one is neither text nor messages, or not as the first one."""
    columns = dataset.column_names
    if "prompt" not in columns:
        raise ValueError(
            f"{name} has no column 'prompt'{nearest('prompt', columns)}, only {', '.join(map(repr, columns))}. Rename "
            "the one that holds the prompts, or give a `dataset_format` that makes it."
        )
    kind = None
    for number, prompt in enumerate(prompts_of(dataset) or (), start=1):
        kind = kind or type(prompt)
        if not is_prompt(prompt) or type(prompt) is not kind:
            raise ValueError(
                f"{name}, row {number}, column 'prompt': expected a text, or a list of messages {{role, content}}, "
                f"as in the other rows, got {prompt!r:.80}."
            )


def prompts_of(data: Any) -> Sequence | None:
    """All prompts of a dataset; `None` for a stream, and for a dataset with a transform or without the column."""
    if not isinstance(data, Dataset) or "prompt" not in data.column_names or data.format["type"] == "custom":
        return None
    return data.with_format(None)["prompt"]


def is_prompt(prompt: Any) -> bool:
    """Whether it is a text, or messages. The content of a message may be a list of parts, as in multimodal prompts."""
    if isinstance(prompt, str):
        return bool(prompt.strip())
    if not isinstance(prompt, list):
        return False
    for message in prompt:
        if not isinstance(message, dict):
            return False
        if not message.get("role") or not message.get("content"):
            return False
    return bool(prompt)
