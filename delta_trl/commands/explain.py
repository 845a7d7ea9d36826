"""`delta-trl explain`: token credit of completions from a file, recorded as training records a rollout batch."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from ..arguments.errors import UsageError
from ..arguments.options import Options
from ..arguments.parser import StrictParser, documented
from ..credit import credit_at_rollout, make_rule
from ..data.completions import read_completions
from ..evaluation.arguments import ModelArguments
from ..evaluation.generation import ModelSource, beginning
from ..evaluation.processes import start_processes
from ..files import write_atomically
from ..policy.checks import check_ids, doubts, refuse_chats_without_template
from ..policy.prompts import prompt_ids
from ..policy.standalone import add_advantages, given_tokens
from ..report import write_report
from ..report.token_log.log import serialize
from ..report.token_log.records import COMPLETIONS, COMPLETIONS_FILE, FOLDER
from ..report.token_log.texts import TokenTexts
from .checks import check_model_path
from .folder import RECORDS, refuse_unwritable


REPORT = "report.html"


@documented
@dataclass(kw_only=True)
class ExplainArguments(ModelArguments):
    """
    Options of `delta-trl explain`, with those of [`ModelArguments`].

    Args:
        data (`str`):
            JSON lines such as {"prompt": "2+3=", "completion": "5", "reward": 1.0}. A prompt may be a list of chat
            messages, a reward null where it is unknown. Completions of the same prompt are a group: their rewards
            become advantages as in GRPO.
        output_dir (`str`): Where the records and the report go.
        rules (`str`, *optional*, defaults to `"delta"`):
            One rule, as in recipes, options after a colon: `delta:token_gradient=lm_head` or `your_module.YourRule`.
        batch_size (`int`, *optional*, defaults to `4`): Completions in a forward pass.
        overwrite (`bool`, *optional*, defaults to `False`): Replace what this command wrote there before.
    """

    data: str | None = None
    output_dir: str | None = None
    rules: str = "delta"
    batch_size: int = 4
    overwrite: bool = False

    def __post_init__(self):
        super().__post_init__()
        self.require("data", "output_dir")
        self.expect("batch_size", self.batch_size >= 1, "a positive number")


def main(options: Options) -> None:
    """Compute the token credit of a file's completions, and write it. Raises `UsageError` for a mistake."""
    args: ExplainArguments
    (args,) = StrictParser([ExplainArguments], prog="delta-trl explain").parse(options)
    check_model_path(args.model_name_or_path)
    rows = read_completions(Path(args.data))
    _check_output(Path(args.output_dir), args.overwrite)
    print(explain(rows, args))


def explain(rows: list[dict], args: ExplainArguments) -> Path:
    """
    Compute token credit, and write the records and the report.

    Args:
        rows (`list[dict]`): As `read_completions` returns them.
        args ([`ExplainArguments`]): The command's.

    Returns:
        `Path`: The HTML file.

    Raises:
        UsageError: If there is no such rule or model, a line does not fit it, or nothing can be written.
    """
    try:
        rule = make_rule(args.rules)
    except ValueError as error:
        raise UsageError(f"--rules {args.rules}: {error}") from error
    source, output = args.source(), Path(args.output_dir)
    tokenizer = tokenize(rows, source, args.data)
    try:
        model = source.model().to(start_processes(args.use_cpu).device).eval()
    except Exception as error:  # what loading raises has no common type
        raise _not_loaded(source.name, error) from error
    add_advantages(rows)
    tokens = given_tokens(model, rows, micro_batch_size=args.batch_size, progress=True)
    try:
        credit = credit_at_rollout(rule, tokens)
        values = {
            "coefficients": torch.ones_like(tokens.advantages) if credit is None else credit.weights,
            "log_probs": tokens.log_probs,
            "entropies": tokens.entropies,
        }
    except ValueError as error:  # an LM head that does not reproduce the model's log-probabilities
        raise UsageError(f"model_name_or_path={source.name!r}: {error}") from error
    lengths = [len(row["token_ids"]) for row in rows]
    for name, column in values.items():
        for row, part in zip(rows, column.cpu().split(lengths), strict=True):
            row[name] = part.tolist()
    try:
        _write_records(rows, TokenTexts(tokenizer), output / FOLDER)
    except OSError as error:
        raise UsageError(f"--output_dir {output}: the records cannot be written ({error.strerror}).") from error
    return write_report(output, output / REPORT)


def tokenize(rows: list[dict], source: ModelSource, path: str) -> PreTrainedTokenizerBase:
    """
    Add `prompt_ids` and `token_ids` to the rows; a chat becomes the text that the model reads.

    Args:
        rows (`list[dict]`): As `read_completions` returns them.
        source ([`~evaluation.generation.ModelSource`]): The model.
        path (`str`): The data's file, for messages.

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


def _write_records(rows: list[dict], texts: TokenTexts, folder: Path) -> None:
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


def _check_output(output: Path, overwrite: bool) -> None:
    """Raise `UsageError` if the folder is not writable, or holds records that would be lost or mixed with new ones."""
    folder = output / FOLDER
    refuse_unwritable(folder)
    own = {folder / COMPLETIONS_FILE.format(step=0), output / REPORT}
    patterns = (*RECORDS, f"{FOLDER}/*.parquet", "completions/*.parquet", "checkpoint-*", REPORT)
    found = {path: None for pattern in patterns for path in sorted(output.glob(pattern))}
    foreign = [path for path in found if path not in own]
    if foreign:
        raise UsageError(
            f"--output_dir {output}: holds {foreign[0].relative_to(output)} of a training run, which would be mixed "
            "with these records. Give another folder."
        )
    if found and not overwrite:
        raise UsageError(
            f"--output_dir {output}: holds {next(iter(found)).relative_to(output)} already. Give another folder, or "
            "--overwrite to replace it."
        )
