"""Token credit of completions from a file, recorded as training records a rollout batch: the work of `explain`."""

import argparse
from pathlib import Path

import pyarrow as pa
import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from ..arguments.errors import UsageError
from ..credit import credit_at_rollout, make_rule
from ..evaluation.generation import ModelSource, beginning
from ..files import write_atomically
from ..policy.checks import check_ids, doubts, refuse_chats_without_template
from ..policy.prompts import prompt_ids
from ..policy.standalone import add_advantages, given_tokens
from ..report import write_report
from ..report.token_log.log import TokenTypes, serialize
from ..report.token_log.records import COMPLETIONS, COMPLETIONS_FILE, FOLDER, TOKEN_TYPES_FILE
from ..report.token_log.texts import TokenTexts


def explain(rows: list[dict], options: argparse.Namespace, report: Path) -> Path:
    """
    Compute token credit, and write the records and the report.

    Args:
        rows (`list[dict]`): As `read_completions` returns them.
        options (`argparse.Namespace`): Of the command.
        report (`Path`): The HTML file.

    Returns:
        `Path`: The HTML file.

    Raises:
        UsageError: If there is no such device, rule or model, a line does not fit it, or nothing can be written.
    """
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
        raise UsageError(f"--device {device}: {str(error).splitlines()[0]}") from error
    try:
        rule = make_rule(options.rules)
    except ValueError as error:
        raise UsageError(f"--rules {options.rules}: {error}") from error
    source = ModelSource(options.model_name_or_path, dtype=options.dtype)
    tokenizer = tokenize(rows, source, options.data)
    try:
        model = source.model().to(device).eval()
    except Exception as error:  # what loading raises has no common type
        raise _not_loaded(options.model_name_or_path, error) from error
    add_advantages(rows)
    tokens = given_tokens(model, rows, micro_batch_size=options.batch_size, progress=True)
    try:
        credit = credit_at_rollout(rule, tokens)
        values = {
            "coefficients": torch.ones_like(tokens.advantages) if credit is None else credit.weights,
            "log_probs": tokens.log_probs,
            "entropies": tokens.entropies,
        }
    except ValueError as error:  # an LM head that does not reproduce the model's log-probabilities
        raise UsageError(f"model_name_or_path={options.model_name_or_path!r}: {error}") from error
    lengths = [len(row["token_ids"]) for row in rows]
    for name, column in values.items():
        for row, part in zip(rows, column.cpu().split(lengths), strict=True):
            row[name] = part.tolist()
    types = TokenTypes(max(len(tokenizer), model.config.get_text_config().vocab_size))
    types.add(*(x.cpu().numpy() for x in (tokens.ids, values["coefficients"], tokens.advantages)))
    try:
        _write_records(rows, types, TokenTexts(tokenizer), options.output_dir / FOLDER)
    except OSError as error:
        raise UsageError(
            f"--output_dir {options.output_dir}: the records cannot be written ({error.strerror})."
        ) from error
    return write_report([options.output_dir], report, min_count=options.min_count)


def tokenize(rows: list[dict], source: ModelSource, path: Path) -> PreTrainedTokenizerBase:
    """
    Add `prompt_ids` and `token_ids` to the rows; a chat becomes the text that the model reads.

    Args:
        rows (`list[dict]`): As `read_completions` returns them.
        source ([`~evaluation.generation.ModelSource`]): The model.
        path (`Path`): The data's file, for messages.

    Returns:
        `PreTrainedTokenizerBase`: The model's tokenizer.

    Raises:
        UsageError: If the tokenizer cannot be loaded, or a line does not fit it or the model.
    """
    try:
        config, tokenizer = source.config(), source.tokenizer()
    except Exception as error:  # what loading raises has no common type
        raise _not_loaded(source.name, error) from error
    for row in rows:
        try:
            _tokenize_row(row, tokenizer, config)
        except Exception as error:  # what tokenizers and chat templates raise has no common type
            raise UsageError(f"{path}, line {row['line']}, does not fit {source.name}: {beginning(error)}") from error
    return tokenizer


def _tokenize_row(row: dict, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> None:
    refuse_chats_without_template([row["prompt"]], tokenizer, "The data")
    (row["prompt_ids"],) = prompt_ids(tokenizer, [row["prompt"]])
    if not isinstance(row["prompt"], str):
        row["prompt"] = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
    row["token_ids"] = tokenizer(row["completion"], add_special_tokens=False).input_ids
    check_ids(row["prompt_ids"], config, "the prompt")
    check_ids(row["token_ids"], config, "the completion")
    for doubt in doubts(row["prompt_ids"] + row["token_ids"], tokenizer, config, "it"):
        raise ValueError(doubt)


def _not_loaded(model: str, error: Exception) -> UsageError:
    return UsageError(f"model_name_or_path={model!r}: cannot be loaded: {beginning(error)}")


def _write_records(rows: list[dict], types: TokenTypes, texts: TokenTexts, folder: Path) -> None:
    records = [
        {
            **row,
            "step": 0,
            "prompt_index": row["group"],
            "rewards": [("reward", row["reward"])],
            "tokens": texts.of_sequence(row["token_ids"]),
        }
        for row in rows
    ]
    write_atomically(serialize(pa.Table.from_pylist(records, COMPLETIONS)), folder / COMPLETIONS_FILE.format(step=0))
    write_atomically(serialize(types.table(texts)), folder / TOKEN_TYPES_FILE)
