"""Loads datasets from the hub or local files, and makes the columns that TRL expects: `prompt`, `solution`, …"""

import inspect
import logging
from collections.abc import Callable, Sequence
from glob import escape
from pathlib import Path
from typing import Any

from datasets import Dataset, Value, load_dataset
from transformers import PreTrainedTokenizerBase

from ..arguments.errors import users_line
from ..arguments.lookup import import_dotted, nearest, refuse_missing_path
from ..scoring.prompts import prompt_ids
from . import formats
from .columns import GOLD_COLUMNS, check_prompt_column, refuse_rounded
from .completions import read_lines
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
    refuse_missing_path("dataset_name", name)
    path = Path(name)
    kind = local_format(name)
    try:
        if kind:
            dataset = load_dataset(kind, data_files={split.partition("[")[0]: escape(name)}, split=split)
        else:
            dataset = load_dataset(name, config, split=split)
    except Exception as error:  # `datasets` wraps errors of every kind
        if path.suffix.lower() == ".jsonl":  # the reader of `datasets` counts lines of a part of the file
            list(read_lines(path, lambda row: None))  # raises for the first line that is not JSON
        reason = str(error.__cause__ or error) or "it has no rows"
        if kind is None and path.is_file():
            reason = f"expected a file of {', '.join(LOCAL_FORMATS)}, or a folder of such files"
        raise ValueError(f"The data {name!r} cannot be loaded: {reason}") from error
    for column, feature in dataset.features.items():
        if feature == Value("float32"):
            # through texts, for 0.1 to stay 0.1: as a number it is 0.10000000149
            dataset = dataset.cast_column(column, Value("string"))
            dataset = dataset.cast_column(column, Value("float64"))
    if not dataset_format:
        return dataset
    is_ours = dataset_format in FORMATS
    read = FORMATS[dataset_format] if is_ours else import_dotted("dataset format", dataset_format, FORMATS)

    def convert(row: dict, i: int, code: str) -> dict:
        try:
            columns = dict(read(row))
            for gold in GOLD_COLUMNS:
                refuse_rounded(dict(row), columns.get(gold), gold)
            return columns
        except Exception as error:  # a user's function may raise anything
            raise ValueError(
                f"{name}, row {i + 1}: dataset_format={dataset_format!r} cannot read it ({error!r}). Its columns are "
                f"{', '.join(row)}. {users_line(error)}".rstrip()
            ) from error

    # `datasets` recognises a function by its name, and would take the rows that an older version of it has cached. It
    # hashes arguments: the code of ours is one. A user's function may call and read anything: its rows stay in memory,
    # without a cache.
    return dataset.map(
        convert,
        with_indices=True,
        remove_columns=dataset.column_names,
        fn_kwargs={"code": inspect.getsource(formats)},
        keep_in_memory=not is_ours,
        load_from_cache_file=is_ours,
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
            it applies to the last user message, or to the last text in it if its content is in parts.
        system_prompt (`str`, *optional*):
            Makes each prompt a chat that begins with this system message, in place of one that it has.
        conversational (`bool`, *optional*, defaults to `False`): Turn string prompts into one user message.
        name (`str`, *optional*, defaults to `"The dataset"`): What the dataset is called in messages.

    Raises:
        ValueError: If a column is missing, or a prompt is neither text nor messages, or not what the first one is.
    """
    mapping = column_mapping or {}
    columns = dataset.column_names
    for column, new_name in mapping.items():
        if column not in columns or not isinstance(new_name, str):
            problem = "is no name" if column in columns else f"is not among its columns{nearest(str(column), columns)}"
            what = new_name if column in columns else column
            raise ValueError(
                f"{name}: column_mapping={mapping}: {what!r} {problem}. It has {', '.join(map(repr, columns))}; the "
                "mapping is from such a column to its new name."
            )
    new_names = set(mapping.values())
    replaced = new_names.intersection(dataset.column_names).difference(mapping)
    dataset = dataset.remove_columns(sorted(replaced))
    dataset = dataset.rename_columns(mapping)
    check_prompt_column(dataset, name)
    template = prompt_template or "{prompt}"
    if "{prompt}" not in template:
        raise ValueError(f"prompt_template={template!r}: expected the text to contain {{prompt}}.")
    are_chats = conversational or system_prompt
    if template == "{prompt}" and not are_chats:
        return dataset

    def format_prompt(prompt: str | list[dict]) -> str | list[dict]:
        if isinstance(prompt, str):
            if not are_chats:
                return template.replace("{prompt}", prompt)
            prompt = [{"role": "user", "content": prompt}]
        messages = prompt
        if system_prompt:
            others = [message for message in prompt if message["role"] != "system"]
            messages = [{"role": "system", "content": system_prompt}, *others]
        asked = [message for message in messages if message["role"] == "user"]
        for message in asked[-1:]:
            put_around(message, template)
        return messages

    return dataset.map(
        lambda row: {"prompt": format_prompt(row["prompt"])},
        remove_columns="prompt",
        desc="Formatting prompts",
    )


def put_around(message: dict, template: str) -> None:
    """Put the template around the content of a message: its text, or the last text of its parts."""
    content = message["content"]
    if isinstance(content, str):
        message["content"] = template.replace("{prompt}", content)
        return
    texts = [part for part in content if part["type"] == "text"]
    for part in texts[-1:]:
        part["text"] = template.replace("{prompt}", part["text"])


def drop_rows_without_gold(dataset: Dataset, reward_funcs: Sequence[Callable], name: str) -> Dataset:
    """
    Leave out the rows that the rewards cannot grade: `solution` or `tests` is missing or blank, and a reward function
    has a parameter of that name. Logs how many. Raises `ValueError` if no row is left.
    """
    taken = set[str]()
    for reward in reward_funcs:
        taken.update(inspect.signature(reward).parameters)
    golds = [column for column in GOLD_COLUMNS if column in dataset.column_names and column in taken]
    if not golds:
        return dataset

    def is_whole(*cells: Any) -> bool:
        return all(cell is not None and str(cell).strip() for cell in cells)

    kept = dataset.filter(is_whole, input_columns=golds, desc="Looking for golds")
    return _kept(kept, dataset, name, f"they have no usable {' or '.join(map(repr, golds))}")


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

    def short(prompts: list) -> list[bool]:
        tokenized = prompt_ids(tokenizer, prompts, chat_template_kwargs)
        return [len(ids) <= max_length for ids in tokenized]

    kept = dataset.filter(short, batched=True, input_columns="prompt", desc="Measuring prompts")
    return _kept(kept, dataset, name, f"their prompts have more than max_prompt_length={max_length} tokens")


def _kept(kept: Dataset, dataset: Dataset, name: str, why: str) -> Dataset:
    """The rows that are kept. Logs how many are left out. Raises `ValueError` if it is all of them."""
    total = len(dataset)
    left_out = total - len(kept)
    if left_out == total:
        raise ValueError(f"{name}: all {total} rows are left out, {why}.")
    if left_out:
        logger.warning(f"{name}: {left_out} of {total} rows are left out, {why}.")
    return kept
