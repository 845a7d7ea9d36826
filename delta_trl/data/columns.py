"""Checks that a dataset has the columns that training and its rewards need."""

import inspect
from collections.abc import Callable
from typing import Any

from datasets import Dataset


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


def check_datasets(train_dataset: Any, eval_dataset: Any, reward_funcs: list | None) -> None:
    """
    Check the datasets of a trainer against its rewards, in any form that `GRPOTrainer` takes. `reward_funcs` is `None`
    if rewards get their columns from elsewhere. Raises `ValueError` for an empty dataset, and where there is no prompt
    or a reward lacks a column. Streams that do not know their columns pass.
    """
    functions = [reward for reward in reward_funcs or [] if _is_function(reward)]
    names = [getattr(function, "__name__", type(function).__name__) for function in functions]
    evaluated = eval_dataset if isinstance(eval_dataset, dict) else {"": eval_dataset}
    datasets = {"train_dataset": train_dataset}
    datasets |= {f"eval_dataset {key!r}" if key else "eval_dataset": value for key, value in evaluated.items()}
    for name, dataset in datasets.items():
        columns = getattr(dataset, "column_names", None)
        if hasattr(dataset, "__len__") and len(dataset) == 0:
            raise ValueError(f"{name} is empty.")
        if not isinstance(columns, list):
            continue
        if "prompt" not in columns:
            raise ValueError(
                f"{name} has no column 'prompt', only {', '.join(map(repr, columns))}. Rename the one that holds the "
                "prompts: dataset.rename_column('<its name>', 'prompt')."
            )
        check_reward_columns(columns, functions, names)


def refuse_chats_without_template(rows: Any, tokenizer: Any, name: str = "The dataset") -> None:
    """
    Raise `ValueError` if prompts are chats, and the tokenizer cannot make text of them.

    Args:
        rows (`Dataset` or `list[dict]`): Rows with a `prompt`; only the first is checked. Anything else passes.
        tokenizer (`PreTrainedTokenizerBase` or `ProcessorMixin`): The model's.
        name (`str`, *optional*, defaults to `"The dataset"`): What the rows are called in the message.
    """
    chats = isinstance(rows, (Dataset, list)) and not isinstance(rows[0]["prompt"], str)
    if chats and getattr(tokenizer, "chat_template", None) is None:
        raise ValueError(
            f"{name}: the prompts are chats, but the tokenizer of {getattr(tokenizer, 'name_or_path', '')!r} has no "
            "chat template. Use plain text as prompts (`conversational: false` in a recipe), or a model whose "
            "tokenizer has a template, as instruction-tuned models have."
        )


def _is_function(reward: Any) -> bool:
    """Whether a reward is called with columns. Reward models (modules, or their names) are not."""
    return callable(reward) and not hasattr(reward, "forward") and not inspect.isclass(reward)


def check_reward_columns(columns: list[str], reward_funcs: list[Callable], names: list[str]) -> None:
    """Raise `ValueError` if a reward function requires an argument that is not a column of the dataset."""
    for func, name in zip(reward_funcs, names, strict=True):
        try:
            parameters = inspect.signature(func).parameters.values()
        except (ValueError, TypeError):  # builtins may have no signature
            continue
        for parameter in parameters:
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
