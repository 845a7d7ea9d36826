"""`delta-trl explain`: token credit of completions from a file, recorded as training records a rollout batch."""

import logging
from pathlib import Path

import torch

from ..arguments.errors import mistakes
from ..arguments.parser import parse
from ..credit import Credit, checked_credit
from ..data.completions import read_completions
from ..data.records import token_columns, write_records
from ..report import write_report
from ..scoring.checks import Reader, check_sequence
from ..scoring.prompts import prompt_ids
from ..scoring.standalone import given_tokens, rule_without_training
from ..scoring.texts import TokenTexts
from .arguments import ExplainArguments
from .folder import refuse_another_run


logger = logging.getLogger(__name__)


def main(args: list[str]) -> None:
    """Compute the token credit of a file's completions, and write it. Raises `UsageError` for a mistake."""
    arguments: ExplainArguments
    (arguments,) = parse([ExplainArguments], args, prog="delta-trl explain")
    rows = read_completions(Path(arguments.data))
    refuse_another_run(Path(arguments.output_dir))
    with mistakes():
        print(explain(rows, arguments))


def explain(rows: list[dict], args: ExplainArguments) -> Path:
    """
    Compute token credit, and write the records and the report.

    Args:
        rows (`list[dict]`): As `read_completions` returns them.
        args ([`ExplainArguments`]): The command's.

    Returns:
        `Path`: The HTML file.

    Raises:
        ValueError, OSError: If there is no such rule or model, a line does not fit it, or nothing can be written.
    """
    rule = rule_without_training(args.token_credit)
    output = Path(args.output_dir)
    reader = args.reader()
    tokenizer = reader.tokenizer
    for row in rows:
        try:
            warnings = tokenize(row, reader)
        except Exception as error:  # what tokenizers and chat templates raise has no common type
            where = f"{args.data}, line {row['line']}"
            raise ValueError(f"{where}, does not fit {args.name}: {error}") from error
        for warning in warnings:
            logger.warning(f"{args.data}, {warning}")
    tokens = given_tokens(args.model(), rows, tokenizer, micro_batch_size=args.batch_size, progress=True)
    credit = checked_credit(rule, "of_rollout", tokens)
    if credit is None:
        credit = Credit(torch.ones_like(tokens.advantages), advantages=tokens.advantages)
    columns = token_columns(tokens, credit, ("log_probs", "entropies"))
    texts = TokenTexts(tokenizer)
    records = []
    for i, row in enumerate(rows):
        ids = row["token_ids"]
        record = {
            **row,
            "step": 0,
            "prompt_index": row["group"],
            "rewards": [("reward", row["reward"])],
            "tokens": texts.of_sequence(ids),
        }
        for name, column in columns.items():
            record[name] = column[i, : len(ids)].tolist()
        records.append(record)
    write_records(records, output, step=0)
    model = f"{args.name}, without training: the file as one rollout batch"
    return write_report(output, output / "report.html", settings={"model": model, "token_credit": repr(rule)})


def tokenize(row: dict, reader: Reader) -> list[str]:
    """
    Add `prompt_ids`, and `token_ids` and `turns` if they are missing, to a row of `read_completions`; a chat becomes
    the text that the model reads. Returns warnings. Raises any error for what does not fit the tokenizer or the model.
    """
    tokenizer = reader.tokenizer
    (row["prompt_ids"],) = prompt_ids(tokenizer, [row["prompt"]])
    if not isinstance(row["prompt"], str):
        row["prompt"] = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
    if row["token_ids"] is None:
        ids = tokenizer(row["completion"], add_special_tokens=False).input_ids
        row["token_ids"] = ids
        row["turns"] = [1] * len(ids)
    return check_sequence(row["prompt_ids"], row["token_ids"], reader, f"line {row['line']}")
