"""From the rows of `delta-trl explain` to the records of training, of a single rollout batch, and the report."""

import argparse
from pathlib import Path

import pyarrow as pa
import torch
from transformers import PreTrainedTokenizerBase

from ..arguments.errors import RecipeError
from ..credit import read_rule
from ..files import write_atomically
from ..report import write_report
from ..report.token_log.log import TokenTypes, serialize
from ..report.token_log.records import COMPLETIONS, COMPLETIONS_FILE, FOLDER, TOKEN_TYPES_FILE
from ..report.token_log.texts import TokenTexts
from .credit import add_advantages, add_credit
from .model import load_model, read_tokens


def explain(rows: list[dict], options: argparse.Namespace) -> Path:
    """
    Compute token credit and write it.

    Args:
        rows (`list[dict]`): As `read_rows` returns them.
        options (`argparse.Namespace`): Of the command.

    Returns:
        `Path`: The report.

    Raises:
        RecipeError: If there is no such device, rule or model, a line does not fit it, or nothing can be written.
    """
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
        raise RecipeError(f"--device {device}: {str(error).splitlines()[0]}") from error
    try:
        rule = read_rule(options.rule)
    except ValueError as error:
        raise RecipeError(f"--rule {options.rule}: {error}") from error
    add_advantages(rows)
    tokenizer = read_tokens(rows, options.model, options.data)
    model = load_model(options.model, options.dtype, device)
    try:
        advantages = add_credit(rows, model, rule, options.batch_size)
    except ValueError as error:  # an LM head that does not reproduce the model's log-probabilities
        raise RecipeError(f"--model {options.model}: {error}") from error
    vocab_size = max(len(tokenizer), model.config.get_text_config().vocab_size)
    try:
        _write_records(rows, advantages, tokenizer, vocab_size, options.output / FOLDER)
    except OSError as error:
        raise RecipeError(f"--output {options.output}: the records cannot be written ({error.strerror}).") from error
    return write_report([options.output], options.output / "report.html", min_count=options.min_count)


def _write_records(
    rows: list[dict], advantages: torch.Tensor, tokenizer: PreTrainedTokenizerBase, vocab_size: int, folder: Path
) -> None:
    texts, types = TokenTexts(tokenizer), TokenTypes(vocab_size)
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
    ids = torch.tensor([token for row in rows for token in row["token_ids"]], dtype=torch.long)
    coefficients = torch.tensor([c for row in rows for c in row["coefficients"]])
    types.add(ids.numpy(), coefficients.numpy(), advantages.numpy())
    write_atomically(serialize(types.table(texts)), folder / TOKEN_TYPES_FILE)
