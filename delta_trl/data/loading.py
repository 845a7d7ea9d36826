"""Loads datasets from the hub or local files, and makes the columns that TRL expects: `prompt`, `solution`, …"""

import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Sequence
from functools import cache
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from datasets import Dataset, DatasetDict, load_dataset

from ..policy.checks import refuse_chats_without_template
from ..policy.prompts import prompt_ids
from .formats import FORMATS, CellError, check_prompt


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
        name (`str`):
            Id of a dataset on the hub, path of a local `.json`, `.jsonl` or `.parquet` file, or of a folder of such.
        config (`str`, *optional*): Configuration of a hub dataset.
        split (`str`, *optional*, defaults to `"train"`): Split of a hub dataset. A local file is one split.
        dataset_format (`str`, *optional*): The schema of its rows, which [`standardize`] turns into our columns.
        data_file (`str`, *optional*): The file of a hub dataset to read, where it has no configuration of its own.

    Raises:
        FileNotFoundError: If `name` looks like a local file that does not exist.
        ValueError:
            If a local file is of another format or cannot be read, or the hub dataset lacks the split; and as
            [`standardize`].
    """
    path = Path(name)
    if path.is_file() or path.suffix in LOCAL_FORMATS:
        dataset = _load_file(name)
    else:
        form = FORMATS.get(dataset_format or "")
        in_parquet = not path.is_dir() or any(path.rglob("*.parquet"))  # files of other kinds are read as a whole
        options = {"columns": list(form.columns)} if form and form.read_columns and in_parquet else {}
        try:
            dataset = load_dataset(name, name=config, data_files=data_file, **options)
        except Exception as error:  # `datasets` wraps errors of every kind
            why = " ".join(str(error.__cause__ or error).split())[:300]
            raise ValueError(f"dataset_name={name!r}: the data cannot be loaded: {why}") from error
        if isinstance(dataset, DatasetDict):
            if split not in dataset:
                raise ValueError(f"dataset_name={name!r}: no split {split!r}, it has {', '.join(map(repr, dataset))}.")
            dataset = dataset[split]
    return standardize(dataset, dataset_format, name) if dataset_format else dataset


def _load_file(name: str) -> Dataset:
    path = Path(name)
    if not path.is_file():
        raise FileNotFoundError(f"dataset_name={name!r}: no such file (from {Path.cwd()}).")
    if path.suffix not in LOCAL_FORMATS:
        raise ValueError(f"dataset_name={name!r}: expected a file of {', '.join(LOCAL_FORMATS)}.")
    if path.suffix != ".parquet":
        try:
            with path.open(encoding="utf-8") as file:
                lines = sum(not line.isspace() for line in file)  # decodes all of it, which Arrow does not
        except UnicodeDecodeError as error:
            raise ValueError(f"dataset_name={name!r}: save the file as UTF-8 ({error}).") from error
        if not lines:
            raise ValueError(f"dataset_name={name!r}: the file is empty.")
    try:
        dataset = load_dataset(LOCAL_FORMATS[path.suffix], data_files=escape(str(path)), split="train")
    except Exception as error:  # `datasets` wraps parser errors of every kind
        cause = _first_bad_line(path) or error.__cause__ or error
        raise ValueError(f"dataset_name={name!r}: the file cannot be read: {cause}") from error
    if path.suffix != ".parquet":
        _refuse_lost_digits(dataset, name)
    return dataset


def _refuse_lost_digits(dataset: Dataset, name: str) -> None:
    """Raise `ValueError` for columns of integers that Arrow has read as decimals."""
    for column, feature in dataset.features.items():
        is_float = getattr(feature, "dtype", None) == "float64"
        if is_float and (pc.max(pc.abs(dataset.data.column(column))).as_py() or 0) >= 2**53:
            raise ValueError(
                f"dataset_name={name!r}, column {column!r}: integers that are this long, or that are mixed with "
                "decimals, lose digits. Write them as texts."
            )


def _first_bad_line(path: Path) -> str | None:
    """What is wrong with the first bad line of a `.jsonl` file, if there is one."""
    if path.suffix != ".jsonl":
        return None
    kinds: dict[str, type] = {}  # column -> type of its first value
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            return f"row {number} is not JSON: {error}"
        if not isinstance(row, dict):
            return f"row {number}: expected an object {{column: value}}, got {type(row).__name__}"
        for column, value in row.items():
            given = float if type(value) is int else type(value)  # a column may hold both
            if value is not None and kinds.setdefault(column, given) is not given:
                kind = kinds[column].__name__
                return f"row {number}, column {column!r}: expected a {kind} as in the rows before, got {value!r}"
    return None


def standardize(dataset: Dataset, format_name: str, name: str) -> Dataset:
    """
    Turn the rows of a public dataset, given in its own schema, into `prompt` and `solution` or `tests`.

    Args:
        dataset (`Dataset`): In the source's schema; further columns are dropped.
        format_name (`str`): Key of [`FORMATS`](formats.py).
        name (`str`): What the dataset is called in messages: hub id or file.

    Returns:
        `Dataset`: Rows without a usable gold have `None` there, see [`drop_rows_without_gold`].

    Raises:
        ValueError: If the format is unknown, a column is missing, or a cell does not hold what it should.
    """
    if format_name not in FORMATS:
        raise ValueError(f"dataset_format={format_name!r}: expected one of {', '.join(map(repr, FORMATS))}.")
    form = FORMATS[format_name]
    missing = [column for column in form.columns if column not in dataset.column_names]
    if missing:
        raise ValueError(
            f"{name}: dataset_format={format_name!r} ({form.source}) needs the columns "
            f"{', '.join(map(repr, form.columns))}; {', '.join(map(repr, missing))} missing from "
            f"{', '.join(map(repr, dataset.column_names))}."
        )
    dataset = dataset.select_columns(list(form.columns))
    # numbered before rows are left out, so that messages name the rows of the file
    numbers: Sequence[int] = range(1, len(dataset) + 1)
    if form.only:
        column, value = form.only
        numbers = [number for number, cell in zip(numbers, dataset[column], strict=True) if cell == value]
        logger.info(f"{name}: {len(numbers)} of {len(dataset)} rows have {column} {value!r}.")
        dataset = dataset.select([number - 1 for number in numbers])

    def convert(row: dict, i: int, code: str) -> dict:
        try:
            names = {"problem_id": str(row[form.id])} if form.id else {}
            return {**names, **form.convert(row), **{column: row[column] for column in form.keep}}
        except CellError as error:
            raise ValueError(f"{name}, row {numbers[i]}, column {error.column!r}: {error}.") from error

    return dataset.map(
        convert,
        with_indices=True,
        remove_columns=list(form.columns),
        fn_kwargs={"code": _hash_of_code()},  # `datasets` would take the rows that an older version has cached
        desc=f"Reading {format_name} rows",
    )


@cache
def _hash_of_code() -> str:
    """Of all that decides what a gold is."""
    package, content = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted([*(package / "data").rglob("*.py"), *(package / "rewards").rglob("*.py")]):
        content.update(file.read_bytes())
    return content.hexdigest()


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
        column_mapping (`dict[str, str]`, *optional*): New names of columns, for example `{"question": "prompt"}`.
        prompt_template (`str`, *optional*):
            Text around each prompt; `{prompt}` stands for it, other braces are left alone. In a conversational prompt
            it applies to the last user message.
        system_prompt (`str`, *optional*): Put before conversational prompts that have no system message.
        conversational (`bool`, *optional*, defaults to `False`): Turn string prompts into one user message.
        name (`str`, *optional*, defaults to `"The dataset"`): What the dataset is called in messages.

    Raises:
        ValueError: If a column is missing or named twice, a prompt is neither text nor messages, or the options do not
            fit the prompts.
    """
    columns, mapping = dataset.column_names, column_mapping or {}
    for source, target in mapping.items():
        if source not in columns:
            raise ValueError(f"column_mapping: no column {source!r}, the dataset has {', '.join(map(repr, columns))}.")
        if list(mapping.values()).count(target) > 1:
            both = ", ".join(repr(name) for name in mapping if mapping[name] == target)
            raise ValueError(f"column_mapping: {both} are all to be called {target!r}. Map one of them.")
    # the mapped column is the one meant; keeping both under one name is impossible
    dataset = dataset.remove_columns([name for name in mapping.values() if name in columns and name not in mapping])
    dataset = dataset.rename_columns(mapping)
    prompt_column = {target: source for source, target in mapping.items()}.get("prompt", "prompt")
    if "prompt" not in dataset.column_names:
        known = [key for key, form in FORMATS.items() if set(form.columns) <= set(columns)]
        hint = f" This looks like `dataset_format: {known[0]}`." if known else ""
        raise ValueError(
            f"{name} has no column 'prompt', only {', '.join(map(repr, dataset.column_names))}. Say which one "
            f"holds the prompts, for example `column_mapping: {{question: prompt, answer: solution}}`.{hint}"
        )
    if len(dataset) == 0:
        raise ValueError(f"{name} is empty.")
    for number, prompt in enumerate(dataset["prompt"], start=1):
        try:
            check_prompt(prompt, prompt_column)
        except CellError as error:
            raise ValueError(f"{name}, row {number}, column {error.column!r}: {error}.") from error
    begun = (not isinstance(prompt, str) and prompt[0]["role"] == "system" for prompt in dataset["prompt"])
    if system_prompt is not None and all(begun):
        raise ValueError(f"{name}: system_prompt has no effect, every prompt begins with a system message.")
    if prompt_template is not None and "{prompt}" not in prompt_template:
        raise ValueError(f"prompt_template={prompt_template!r}: expected the text to contain {{prompt}}.")
    if system_prompt is not None and not conversational and isinstance(dataset[0]["prompt"], str):
        raise ValueError("system_prompt is for conversational prompts: also set `conversational: true`.")

    def format_prompt(prompt: str | list[dict]) -> str | list[dict]:
        template = prompt_template or "{prompt}"
        if isinstance(prompt, str) and not conversational:
            return template.replace("{prompt}", prompt)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        users = [i for i, message in enumerate(messages) if message["role"] == "user"]
        if users and prompt_template is not None:
            content = messages[users[-1]]["content"]
            if not isinstance(content, str):
                raise ValueError(f"{name}: prompt_template is for text, got a message with the content {content!r}.")
            messages[users[-1]] = {**messages[users[-1]], "content": template.replace("{prompt}", content)}
        start = [{"role": "system", "content": system_prompt}] if system_prompt else []
        return ([] if messages[0]["role"] == "system" else start) + messages

    if prompt_template is None and system_prompt is None and not conversational:
        return dataset
    return dataset.map(
        lambda row: {"prompt": format_prompt(row["prompt"])}, remove_columns="prompt", desc="Formatting prompts"
    )


def drop_rows_without_gold(dataset: Dataset, reward_funcs: list[Callable], name: str) -> Dataset:
    """
    Leave out the rows that the rewards cannot grade: `solution` or `tests` is missing or blank, and a reward function
    has a parameter of that name. Logs their number and the first of them.

    Raises:
        ValueError: If no row is left, or a column of a reward function was read as dates.
    """
    taken = {parameter for func in reward_funcs for parameter in inspect.signature(func).parameters}
    for column in taken.intersection(dataset.column_names):
        if str(getattr(dataset.features[column], "dtype", "")).startswith("timestamp"):
            raise ValueError(
                f"{name}: `datasets` has read the texts of {column!r} as dates, as they all look like dates. Save the "
                "data as Parquet, which keeps texts."
            )
    golds = [column for column in GOLD_COLUMNS if column in dataset.column_names and column in taken]
    unusable = sorted(
        {i for gold in golds for i, cell in enumerate(dataset[gold]) if cell is None or not str(cell).strip()}
    )
    if not unusable:
        return dataset
    if len(unusable) == len(dataset):
        raise ValueError(f"{name}: no row has a usable {' or '.join(map(repr, golds))}.")
    logger.warning(
        f"{name}: {len(unusable)} of {len(dataset)} rows are left out, they have no usable "
        f"{' or '.join(map(repr, golds))} (the first at {', '.join(str(i + 1) for i in unusable[:5])})."
    )
    skip = set(unusable)
    return dataset.select([i for i in range(len(dataset)) if i not in skip])


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
    if len(kept) == 0:
        raise ValueError(f"{name}: every prompt has more than max_prompt_length={max_length} tokens.")
    if len(kept) < len(dataset):
        logger.warning(
            f"{name}: {len(dataset) - len(kept)} of {len(dataset)} rows are left out, their prompts have more than "
            f"max_prompt_length={max_length} tokens."
        )
    return kept
