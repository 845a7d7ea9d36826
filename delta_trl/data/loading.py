"""Loads datasets from the hub or local files, and makes the columns that TRL expects: `prompt`, `solution`, …"""

import hashlib
import inspect
import logging
from collections.abc import Callable, Iterable
from glob import escape
from pathlib import Path

from datasets import Dataset, load_dataset
from transformers import PreTrainedTokenizerBase

from ..arguments.lookup import import_dotted, nearest
from ..scoring.prompts import prompt_ids
from . import formats
from .columns import GOLD_COLUMNS, is_prompt
from .formats import FORMATS


logger = logging.getLogger(__name__)

LOCAL_FORMATS = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}


def local_format(name: str) -> str | None:
    """How `datasets` calls the format of a local file, by its name; `None` for a folder or an id on the hub."""
    return LOCAL_FORMATS.get(Path(name).suffix.lower())


def load(name: str, config: str | None = None, split: str = "train", dataset_format: str | None = None) -> Dataset:
    """
    Load one split of a dataset.

    Args:
        name (`str`): Id of a dataset on the hub, or path of a local file (`LOCAL_FORMATS`) or of a folder.
        config (`str`, *optional*): Configuration of a hub dataset.
        split (`str`, *optional*, defaults to `"train"`):
            A split, or a part of it, `train[:500]`. A local file is one split, whatever its name.
        dataset_format (`str`, *optional*):
            How rows become `prompt` and `solution` or `tests`; other columns are dropped. Key of
            [`FORMATS`](formats.py), or the dotted path of a function from a row to a dict of columns.

    Raises:
        ValueError: If the data cannot be loaded, in the words of `datasets`; if there is no such format, or it cannot
            read a row.
    """
    kind = local_format(name)
    try:
        if kind:
            files = {split.partition("[")[0]: escape(name)}
            dataset = load_dataset(kind, data_files=files, split=split)
        else:
            dataset = load_dataset(name, config, split=split)
    except Exception as error:  # `datasets` wraps errors of every kind
        reason = str(error.__cause__ or error) or "it has no rows"
        raise ValueError(f"The data {name!r} cannot be loaded: {reason}") from error
    if not dataset_format:
        return dataset
    read = FORMATS.get(dataset_format) or import_dotted("dataset format", dataset_format, FORMATS)

    def convert(row: dict, i: int, code: str) -> dict:
        try:
            return dict(read(row))
        except Exception as error:  # a user's function may raise anything
            raise ValueError(
                f"{name}, row {i + 1}: dataset_format={dataset_format!r} cannot read it ({error!r}). Its columns are "
                f"{', '.join(row)}."
            ) from error

    # `datasets` recognises a function by its name, and would take the rows that an older version of it has cached. The
    # file of ours is hashed. A user's function may call and read anything: its rows stay in memory, without a cache.
    code = hashlib.sha256(Path(formats.__file__).read_bytes()).hexdigest()
    return dataset.map(
        convert,
        with_indices=True,
        remove_columns=dataset.column_names,
        fn_kwargs={"code": code},
        keep_in_memory=dataset_format not in FORMATS,
        load_from_cache_file=dataset_format in FORMATS,
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
            Text around each prompt; `{prompt}` stands for it, other braces are left alone. For prompts that are texts.
        system_prompt (`str`, *optional*):
            Makes each prompt a chat that begins with this system message. For prompts that are texts.
        conversational (`bool`, *optional*, defaults to `False`): Turn string prompts into one user message.
        name (`str`, *optional*, defaults to `"The dataset"`): What the dataset is called in messages.

    Raises:
        ValueError: If a column is missing, a prompt is neither text nor messages, or not what the first one is, or
            chats are to be changed.
    """
    mapping = column_mapping or {}
    replaced = {*mapping.values()} & {*dataset.column_names} - mapping.keys()
    dataset = dataset.remove_columns(list(replaced)).rename_columns(mapping)
    columns = dataset.column_names
    if "prompt" not in columns:
        raise ValueError(
            f"{name} has no column 'prompt'{nearest('prompt', columns)}, only {', '.join(columns) or 'no rows'}. "
            "Rename the one that holds the prompts (`column_mapping`), or give a `dataset_format` that makes it."
        )
    _refuse_malformed(dataset["prompt"], name)
    template = prompt_template or "{prompt}"
    if "{prompt}" not in template:
        raise ValueError(f"prompt_template={template!r}: expected the text to contain {{prompt}}.")
    is_changed = prompt_template or system_prompt
    if not (is_changed or conversational) or len(dataset) == 0:
        return dataset
    if not isinstance(dataset[0]["prompt"], str):
        if is_changed:
            raise ValueError(
                f"{name}: prompt_template and system_prompt are for prompts that are texts, and these are chats. Put "
                "their text into the messages, with a `dataset_format` of your own."
            )
        return dataset
    begin = [{"role": "system", "content": system_prompt}] if system_prompt else []

    def format_prompt(row: dict) -> dict:
        text = template.replace("{prompt}", row["prompt"])
        if not (conversational or begin):
            return {"prompt": text}
        return {"prompt": [*begin, {"role": "user", "content": text}]}

    return dataset.map(format_prompt, remove_columns="prompt", desc="Formatting prompts")


def _refuse_malformed(prompts: Iterable, name: str) -> None:
    """Raise `ValueError` for the first prompt that is neither text nor messages, or not what the first one is."""
    kind = None
    for number, prompt in enumerate(prompts, start=1):
        kind = kind or type(prompt)
        if not is_prompt(prompt) or type(prompt) is not kind:
            raise ValueError(
                f"{name}, row {number}, column 'prompt': expected a text, or a list of messages {{role, content}}, "
                f"as in the other rows, got {prompt!r:.80}."
            )


def drop_rows_without_gold(dataset: Dataset, reward_funcs: list[Callable], name: str) -> Dataset:
    """
    Leave out the rows that the rewards cannot grade: `solution` or `tests` is missing or blank, and a reward function
    has a parameter of that name. Logs how many. Raises `ValueError` if no row is left.
    """
    parameters = set().union(*(inspect.signature(reward).parameters for reward in reward_funcs))
    golds = [column for column in GOLD_COLUMNS if column in dataset.column_names and column in parameters]
    if not golds:
        return dataset

    def has_golds(*cells: object) -> bool:
        return all(cell is not None and str(cell).strip() for cell in cells)

    kept = dataset.filter(has_golds, input_columns=golds, desc="Looking for golds")
    _report_left_out(dataset, kept, name, f"they have no usable {' or '.join(map(repr, golds))}")
    return kept


def drop_long_prompts(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    name: str,
    chat_template_kwargs: dict | None = None,
) -> Dataset:
    """
    Leave out the rows whose final prompt has more than `max_length` tokens, chat template included. Logs how many.
    Raises `ValueError` if no row is left.
    """

    def is_short(prompts: list) -> list[bool]:
        tokenized = prompt_ids(tokenizer, prompts, chat_template_kwargs)
        return [len(ids) <= max_length for ids in tokenized]

    kept = dataset.filter(is_short, batched=True, input_columns="prompt", desc="Measuring prompts")
    _report_left_out(dataset, kept, name, f"their prompts have more than max_prompt_length={max_length} tokens")
    return kept


def _report_left_out(dataset: Dataset, kept: Dataset, name: str, why: str) -> None:
    """Log how many rows are left out. Raises `ValueError` if it is all of them."""
    total = len(dataset)
    left_out = total - len(kept)
    if left_out == total:
        raise ValueError(f"{name}: all {total} rows are left out, {why}.")
    if left_out:
        logger.warning(f"{name}: {left_out} of {total} rows are left out, {why}.")
