"""Checks that a dataset has the columns that training and its rewards need."""

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from datasets import Dataset, LargeList, List

from ..rewards.code import CodeReward


# What TRL itself passes to every reward function, besides the dataset's columns
FROM_TRAINER = {
    "prompts",
    "completions",
    "completion_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
    "environments",
}
NOT_PASSED = {"prompt", "completion", "completion_ids"}  # columns that TRL keeps from rewards


def check_datasets(datasets: dict[str, Any], reward_funcs: list | None) -> None:
    """
    Check the datasets of a trainer, by name, against its rewards, in any form that `GRPOTrainer` takes. `reward_funcs`
    is `None` if rewards get their columns from elsewhere. Raises `ValueError` for an empty dataset, and as
    [`check_columns`]. Streams that do not know their columns pass.
    """
    functions = [reward for reward in reward_funcs or [] if _is_function(reward)]
    names = [getattr(function, "__name__", type(function).__name__) for function in functions]
    for name, dataset in datasets.items():
        columns = getattr(dataset, "column_names", None)
        if hasattr(dataset, "__len__") and len(dataset) == 0:
            raise ValueError(f"{name} is empty.")
        # a stream may not know its columns, and `with_transform` makes others
        if not isinstance(columns, list) or getattr(dataset, "format", {}).get("type") == "custom":
            continue
        if "prompt" not in columns:
            raise ValueError(
                f"{name} has no column 'prompt', only {', '.join(map(repr, columns))}. Rename the one that holds the "
                "prompts: dataset.rename_column('<its name>', 'prompt')."
            )
        if functions and (taken := sorted({"prompts", "completions"}.intersection(columns))):
            raise ValueError(
                f"{name}: the column {taken[0]!r} has the name of an argument that TRL passes to rewards. Rename or "
                "remove it."
            )
        check_columns(dataset, functions, names, name)


def check_columns(dataset: Any, reward_funcs: list[Callable], names: list[str], name: str) -> None:
    """
    Check the prompts of a dataset, and the columns that its rewards get.

    Raises:
        ValueError:
            If a prompt is neither text nor a chat, or is not of the first one's kind; if Arrow may have changed the
            tests of `code_reward`; and as [`check_reward_columns`].
    """
    prompts = _doubtful_prompts(dataset)
    kind: Any = type(prompts[0]) if prompts else str
    for number, prompt in enumerate(prompts, start=1):
        if kind not in (str, list) or type(prompt) is not kind:
            same = f", like that of row 1, a {kind.__name__}" if number > 1 else ""
            raise ValueError(
                f"{name}, row {number}, column 'prompt': expected a text or a list of messages{same}; got {prompt!r}."
            )
    check_reward_columns(dataset.column_names, reward_funcs, names)
    features = dataset.features
    if features and "tests" in features and any(isinstance(reward, CodeReward) for reward in reward_funcs):
        _check_tests(features.arrow_schema.field("tests").type, name)


def _check_tests(kind: pa.DataType, name: str) -> None:
    """Raise `ValueError` for inputs and outputs of a type in which Arrow may have changed them."""
    kinds = [field.type for field in _fields(kind) if field.name in ("inputs", "outputs")]
    while kinds:
        kind = kinds.pop()
        if pa.types.is_floating(kind) or pa.types.is_temporal(kind) or pa.types.is_struct(kind):
            raise ValueError(
                f"{name}, column 'tests': write the tests as JSON texts. Arrow gives all rows one type, here {kind}: "
                "integers beside decimals become decimals, texts that look like dates become dates, and all dicts "
                "get the same keys."
            )
        kinds += [field.type for field in _fields(kind)]


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(i) for i in range(kind.num_fields)]


def _doubtful_prompts(dataset: Any) -> list:
    """The prompts, unless the type of their column says that all are texts, or all are lists, and none is missing."""
    if not isinstance(dataset, Dataset):
        return []
    kind, missing = dataset.features["prompt"], dataset.data.column("prompt").null_count
    alike = isinstance(kind, (list, List, LargeList)) or getattr(kind, "dtype", "") in ("string", "large_string")
    return [] if alike and not missing else dataset.with_format(None)["prompt"][:]


def _is_function(reward: Any) -> bool:
    """Whether a reward is called with columns. Reward models (modules, or their names) are not."""
    return callable(reward) and not hasattr(reward, "forward") and not inspect.isclass(reward)


def check_reward_columns(columns: list[str], reward_funcs: list[Callable], names: list[str]) -> None:
    """
    Raise `ValueError` if a reward function requires an argument that is not a column of the dataset, or does not take
    what TRL passes.
    """
    for func, name in zip(reward_funcs, names, strict=True):
        try:
            parameters = inspect.signature(func, follow_wrapped=False).parameters
        except (ValueError, TypeError):  # builtins may have no signature
            continue
        for parameter in parameters.values():
            required = parameter.default is parameter.empty and parameter.kind in (
                parameter.POSITIONAL_OR_KEYWORD,
                parameter.KEYWORD_ONLY,
            )
            if required and parameter.name not in FROM_TRAINER and parameter.name not in columns:
                raise ValueError(
                    f"The reward {name!r} needs a column {parameter.name!r}, the dataset has "
                    f"{', '.join(map(repr, columns))}. Rename one: `column_mapping: {{<its name>: {parameter.name}}}` "
                    f"in a recipe, dataset.rename_column('<its name>', {parameter.name!r}) in Python."
                )
        passed = [
            *sorted(FROM_TRAINER - {"environments"}),
            *(column for column in columns if column not in NOT_PASSED),
        ]
        refused = [argument for argument in passed if argument not in parameters]
        if refused and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            raise ValueError(
                f"The reward {name!r} does not take {', '.join(map(repr, refused))}, which TRL passes to it: add "
                f"`**kwargs` to its arguments."
            )
