"""Datasets from the hub or from local files, turned into the `prompt` (and `solution`, …) columns that TRL expects."""

import inspect
from collections.abc import Callable
from pathlib import Path

from datasets import Dataset, DatasetDict, load_dataset


LOCAL_FORMATS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}

# What TRL itself passes to every reward function, besides the dataset's columns
_FROM_TRAINER = {
    "prompts",
    "completions",
    "completion_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
    "environments",
}


def load(name: str, config: str | None = None, split: str = "train") -> Dataset:
    """
    Load one split of a dataset.

    Args:
        name (`str`): Id of a dataset on the hub, or path of a local `.json`, `.jsonl` or `.parquet` file.
        config (`str`, *optional*): Configuration of a hub dataset.
        split (`str`, *optional*, defaults to `"train"`): Split of a hub dataset. A local file is one split.

    Raises:
        FileNotFoundError: If `name` looks like a local file that does not exist.
        ValueError: If a local file is of another format or cannot be read, or the hub dataset lacks the split.
    """
    path = Path(name)
    if path.is_file() or path.suffix in LOCAL_FORMATS:
        if not path.is_file():
            raise FileNotFoundError(f"dataset_name={name!r}: no such file (from {Path.cwd()}).")
        if path.suffix not in LOCAL_FORMATS:
            raise ValueError(f"dataset_name={name!r}: expected a file of {', '.join(LOCAL_FORMATS)}.")
        try:
            return load_dataset(LOCAL_FORMATS[path.suffix], data_files=str(path), split="train")
        except Exception as error:  # `datasets` wraps parser errors of every kind
            cause = error.__cause__ or error
            raise ValueError(f"dataset_name={name!r}: the file cannot be read: {cause}") from error
    dataset = load_dataset(name, name=config)
    if isinstance(dataset, DatasetDict):
        if split not in dataset:
            raise ValueError(f"dataset_name={name!r}: no split {split!r}, it has {', '.join(map(repr, dataset))}.")
        dataset = dataset[split]
    return dataset


def prepare(
    dataset: Dataset,
    column_mapping: dict[str, str] | None = None,
    prompt_template: str | None = None,
    system_prompt: str | None = None,
    conversational: bool = False,
) -> Dataset:
    """
    Rename columns and format the prompts.

    Args:
        dataset (`Dataset`): With a column of prompts, strings or lists of messages.
        column_mapping (`dict[str, str]`, *optional*): New names of columns, for example `{"question": "prompt"}`.
        prompt_template (`str`, *optional*):
            Text around each prompt; `{prompt}` stands for it, other braces are left alone. In a conversational prompt
            it applies to the last user message.
        system_prompt (`str`, *optional*): Put before conversational prompts that have no system message.
        conversational (`bool`, *optional*, defaults to `False`): Turn string prompts into one user message.

    Raises:
        ValueError: If a column is missing or named twice, or if the options do not fit the prompts.
    """
    columns = dataset.column_names
    for source, target in (column_mapping or {}).items():
        if source not in columns:
            raise ValueError(f"column_mapping: no column {source!r}, the dataset has {', '.join(map(repr, columns))}.")
        if source != target and target in columns:
            # the mapped column is the one meant; keeping both under one name is impossible
            dataset = dataset.remove_columns(target)
        dataset = dataset.rename_column(source, target) if source != target else dataset
    if "prompt" not in dataset.column_names:
        raise ValueError(
            f"The dataset has no column 'prompt', only {', '.join(map(repr, dataset.column_names))}. Say which one "
            "holds the prompts, for example `column_mapping: {question: prompt, answer: solution}`."
        )
    if len(dataset) == 0:
        raise ValueError("The dataset is empty.")
    if prompt_template is not None and "{prompt}" not in prompt_template:
        raise ValueError(f"prompt_template={prompt_template!r}: expected the text to contain {{prompt}}.")
    if system_prompt is not None and not conversational and isinstance(dataset[0]["prompt"], str):
        raise ValueError("system_prompt is for conversational prompts: also set `conversational: true`.")

    def format_prompt(prompt: str | list[dict]) -> str | list[dict]:
        template = prompt_template or "{prompt}"
        if isinstance(prompt, str) and not conversational:
            return template.replace("{prompt}", prompt)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        last = {**messages[-1], "content": template.replace("{prompt}", messages[-1]["content"])}
        start = [{"role": "system", "content": system_prompt}] if system_prompt else []
        return ([] if messages[0]["role"] == "system" else start) + messages[:-1] + [last]

    if prompt_template is None and system_prompt is None and not conversational:
        return dataset
    prompts = [format_prompt(prompt) for prompt in dataset["prompt"]]
    return dataset.remove_columns("prompt").add_column("prompt", prompts)


def check_reward_columns(dataset: Dataset, reward_funcs: list[Callable], names: list[str]) -> None:
    """Raise `ValueError` if a reward function requires an argument that is not a column of the dataset."""
    for func, name in zip(reward_funcs, names, strict=True):
        for parameter in inspect.signature(func).parameters.values():
            required = parameter.default is parameter.empty and parameter.kind in (
                parameter.POSITIONAL_OR_KEYWORD,
                parameter.KEYWORD_ONLY,
            )
            if required and parameter.name not in _FROM_TRAINER and parameter.name not in dataset.column_names:
                raise ValueError(
                    f"The reward {name!r} needs a column {parameter.name!r}, the dataset has "
                    f"{', '.join(map(repr, dataset.column_names))}. Rename one with `column_mapping: "
                    f"{{<its name>: {parameter.name}}}`."
                )
