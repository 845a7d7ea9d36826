"""Loads datasets from the hub or local files, and makes the columns that TRL expects: `prompt`, `solution`, …"""

import hashlib
import inspect
import logging
from collections.abc import Callable
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset, load_dataset

from ..arguments.lookup import import_dotted
from ..policy.checks import refuse_chats_without_template
from ..policy.prompts import prompt_ids
from .formats import FORMATS


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


logger = logging.getLogger(__name__)

LOCAL_FORMATS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}

# Columns that rewards check answers against: a row without one cannot be graded
GOLD_COLUMNS = ("solution", "tests")


def load(
    name: str,
    config: str | None = None,
    split: str = "train",
    dataset_format: str | None = None,
    data_file: str | None = None,
) -> Dataset:
    """
    Load one split of a dataset.

    Args:
        name (`str`): Id of a dataset on the hub, path of a local `.json`, `.jsonl` or `.parquet` file, or of a folder.
        config (`str`, *optional*): Configuration of a hub dataset.
        split (`str`, *optional*, defaults to `"train"`): Split of a hub dataset. A local file is one split.
        dataset_format (`str`, *optional*): How rows are read, see [`standardize`].
        data_file (`str`, *optional*): The file of a hub dataset to read, where it has no configuration of its own.

    Raises:
        ValueError: If the data cannot be loaded, in the words of `datasets`; and as [`standardize`].
    """
    kind = LOCAL_FORMATS.get(Path(name).suffix)
    try:
        if kind:
            dataset = load_dataset(kind, data_files={split: escape(name)}, split=split)
        else:
            dataset = load_dataset(name, config, data_files=data_file, split=split)
    except Exception as error:  # `datasets` wraps errors of every kind
        raise ValueError(f"dataset_name={name!r}: the data cannot be loaded: {error.__cause__ or error}") from error
    return standardize(dataset, dataset_format, name) if dataset_format else dataset


def standardize(dataset: Dataset, dataset_format: str, name: str) -> Dataset:
    """
    Turn the rows of a dataset, given in its own schema, into `prompt` and `solution` or `tests`.

    Args:
        dataset (`Dataset`): In the source's schema. Columns that the format does not return are dropped.
        dataset_format (`str`):
            Key of [`FORMATS`](formats.py), or the dotted path of a function from a row to a dict of columns.
        name (`str`): What the dataset is called in messages: hub id or file.

    Raises:
        ValueError: If there is no such format, or it cannot read a row.
    """
    read = FORMATS.get(dataset_format) or import_dotted("dataset format", dataset_format, FORMATS)

    def convert(row: dict, i: int, code: str) -> dict:
        try:
            return dict(read(row))
        except Exception as error:  # a user's function may raise anything
            raise ValueError(
                f"{name}, row {i + 1}: dataset_format={dataset_format!r} cannot read it ({error!r}). Its columns are "
                f"{', '.join(row)}."
            ) from error

    # `datasets` recognises a function by its name, and would take the rows that an older version of it has cached
    code = hashlib.sha256(Path(inspect.getfile(read)).read_bytes()).hexdigest()
    return dataset.map(
        convert,
        with_indices=True,
        remove_columns=dataset.column_names,
        fn_kwargs={"code": code},
        desc=f"Reading {dataset_format} rows",
    )


def prepare(
    dataset: Dataset,
    column_mapping: dict[str, str] | None = None,
    prompt_template: str | None = None,
    system_prompt: str | None = None,
    conversational: bool = False,
    name: str = "The dataset",
) -> Dataset:
    """
    Rename columns and format the prompts.

    Args:
        dataset (`Dataset`): With a column of prompts, strings or lists of messages.
        column_mapping (`dict[str, str]`, *optional*): New names of columns, for example `{"question": "prompt"}`. A
            column that has such a name already is replaced.
        prompt_template (`str`, *optional*):
            Text around each prompt; `{prompt}` stands for it, other braces are left alone. In a conversational prompt
            it applies to the last user message.
        system_prompt (`str`, *optional*): Put before conversational prompts that have no system message.
        conversational (`bool`, *optional*, defaults to `False`): Turn string prompts into one user message.
        name (`str`, *optional*, defaults to `"The dataset"`): What the dataset is called in messages.

    Raises:
        ValueError: If a column is missing, or a prompt is neither text nor messages.
    """
    mapping = column_mapping or {}
    replaced = [new for new in mapping.values() if new in dataset.column_names and new not in mapping]
    dataset = dataset.remove_columns(replaced).rename_columns(mapping)
    if "prompt" not in dataset.column_names:
        raise ValueError(
            f"{name} has no column 'prompt', only {', '.join(map(repr, dataset.column_names))}. Name the one that "
            "holds the prompts, for example `column_mapping: {question: prompt, answer: solution}`."
        )
    for number, prompt in enumerate(dataset["prompt"], start=1):
        if not _is_prompt(prompt):
            raise ValueError(
                f"{name}, row {number}, column 'prompt': expected a text, or a list of messages {{role, content}}, "
                f"got {prompt!r:.80}."
            )
    if prompt_template is not None and "{prompt}" not in prompt_template:
        raise ValueError(f"prompt_template={prompt_template!r}: expected the text to contain {{prompt}}.")
    if prompt_template is None and system_prompt is None and not conversational:
        return dataset

    def format_prompt(prompt: str | list[dict]) -> str | list[dict]:
        template = prompt_template or "{prompt}"
        if isinstance(prompt, str) and not conversational:
            return template.replace("{prompt}", prompt)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        users = [i for i, message in enumerate(messages) if message["role"] == "user"]
        if users and prompt_template is not None:
            asked = messages[users[-1]]
            messages[users[-1]] = {**asked, "content": template.replace("{prompt}", asked["content"])}
        if system_prompt and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": system_prompt})
        return messages

    return dataset.map(
        lambda row: {"prompt": format_prompt(row["prompt"])}, remove_columns="prompt", desc="Formatting prompts"
    )


def _is_prompt(prompt: Any) -> bool:
    """Whether it is a text, or messages. The content of a message may be a list of parts, as in multimodal prompts."""
    if isinstance(prompt, list):
        return bool(prompt) and all(message.get("role") and message.get("content") for message in prompt)
    return isinstance(prompt, str) and bool(prompt.strip())


def drop_rows_without_gold(dataset: Dataset, reward_funcs: list[Callable], name: str) -> Dataset:
    """
    Leave out the rows that the rewards cannot grade: `solution` or `tests` is missing or blank, and a reward function
    has a parameter of that name. Logs how many. Raises `ValueError` if no row is left.
    """
    taken = {parameter for reward in reward_funcs for parameter in inspect.signature(reward).parameters}
    golds = [column for column in GOLD_COLUMNS if column in dataset.column_names and column in taken]
    if not golds:
        return dataset
    kept = dataset.filter(
        lambda *cells: all(cell is not None and str(cell).strip() for cell in cells),
        input_columns=golds,
        desc="Looking for golds",
    )
    return _kept(kept, dataset, name, f"they have no usable {' or '.join(map(repr, golds))}")


def drop_long_prompts(
    dataset: Dataset,
    tokenizer: "PreTrainedTokenizerBase",
    max_length: int,
    name: str,
    chat_template_kwargs: dict | None = None,
) -> Dataset:
    """
    Leave out the rows whose prompt has more than `max_length` tokens, chat template included, and log how many.

    Args:
        dataset (`Dataset`): With the final prompts.
        tokenizer (`PreTrainedTokenizerBase`): The model's.
        max_length (`int`): The longest prompt that is kept, in tokens.
        name (`str`): What the dataset is called in messages.
        chat_template_kwargs (`dict`, *optional*): As in `GRPOConfig`.

    Raises:
        ValueError: If no row is left.
    """
    refuse_chats_without_template(dataset["prompt"][:1], tokenizer, name)

    def short(prompts: list) -> list[bool]:
        return [len(ids) <= max_length for ids in prompt_ids(tokenizer, prompts, chat_template_kwargs)]

    kept = dataset.filter(short, batched=True, input_columns="prompt", desc="Measuring prompts")
    return _kept(kept, dataset, name, f"their prompts have more than max_prompt_length={max_length} tokens")


def _kept(kept: Dataset, dataset: Dataset, name: str, why: str) -> Dataset:
    """The rows that are kept. Logs how many are left out. Raises `ValueError` if it is all of them."""
    if len(kept) == 0:
        raise ValueError(f"{name}: all {len(dataset)} rows are left out, {why}.")
    if len(kept) < len(dataset):
        logger.warning(f"{name}: {len(dataset) - len(kept)} of {len(dataset)} rows are left out, {why}.")
    return kept
