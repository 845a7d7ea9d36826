"""`delta-trl explain`. Reads and checks the call without torch; `token_credit.py` does the work."""

import argparse
from pathlib import Path

from ..arguments.command_line import CommandParser
from ..arguments.errors import UsageError
from ..data.completions import read_completions
from ..report import check_packages
from ..report.token_log.records import COMPLETIONS_FILE, FOLDER, TOKEN_TYPES_FILE
from .checks import check_model_path
from .folder import RECORDS, refuse_unwritable


DESCRIPTION = """\
Token credit of completions that you already have, by any causal language
model, without training.

Every line of FILE is a JSON object, such as

  {"prompt": "2+3=", "completion": "5", "reward": 1.0}
  {"prompt": "2+3=", "completion": "6", "reward": 0.0}

A prompt may be a list of chat messages. A reward is null where it is unknown.
Completions of the same prompt are a group: their rewards become advantages as
in GRPO. The coefficients are those that the rule would train with if the file
were one rollout batch, sampled from the model at temperature 1. Writes what
training records, and the report of `delta-trl inspect` over it.
"""
EXAMPLE = """\
example:
  delta-trl explain --model_name_or_path Qwen/Qwen3-0.6B \\
                    --data completions.jsonl --output_dir outputs/explained
"""
REPORT = "report.html"


def main(args: list[str]) -> None:
    """Compute the token credit of a file's completions, and write it. Raises `UsageError` for a mistake."""
    parser = CommandParser(
        prog="delta-trl explain",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s --model_name_or_path MODEL --data FILE --output_dir DIR [--option …]",
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    parser.add_argument(
        "--model_name_or_path", metavar="MODEL", help="hub id or folder of a causal language model, or PEFT adapter"
    )
    parser.add_argument("--data", type=Path, metavar="FILE", help="JSON lines: prompt, completion, reward")
    parser.add_argument("--output_dir", type=Path, metavar="DIR", help=f"folder for the records and {REPORT}")
    parser.add_argument("--overwrite", action="store_true", help="replace what this command wrote there before")
    parser.add_argument(
        "--rules",
        default="delta",
        metavar="NAME[:OPTION=VALUE,…]",
        help="one rule, as in recipes, such as delta:token_gradient=lm_head or your_module.YourRule (%(default)s)",
    )
    parser.add_argument(
        "--batch_size", type=int, default=4, metavar="N", help="completions in a forward pass (%(default)s)"
    )
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=["auto", "bfloat16", "float32"],
        help="of the weights; auto is the checkpoint's",
    )
    parser.add_argument("--device", help="such as cuda:1; if not given, a GPU if there is one")
    parser.add_argument(
        "--min_count",
        type=int,
        default=5,
        metavar="N",
        help="how often a token type must occur to be in the clouds (%(default)s)",
    )
    options = parser.read(args)
    for name in ("model_name_or_path", "data", "output_dir"):
        if not getattr(options, name):
            parser.error(f"--{name} is missing. `{parser.prog} --help` shows an example.")
    for name in ("batch_size", "min_count"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: expected a positive number.")
    check_model_path(options.model_name_or_path)
    check_packages()
    rows = read_completions(options.data)
    _check_output(options.output_dir, options.overwrite)
    # torch and transformers take seconds to import
    from .token_credit import explain

    print(explain(rows, options, options.output_dir / REPORT))


def _check_output(output: Path, overwrite: bool) -> None:
    """Raise `UsageError` if the folder is not writable, or holds records that would be lost or mixed with new ones."""
    folder = output / FOLDER
    refuse_unwritable(folder)
    own = {folder / COMPLETIONS_FILE.format(step=0), folder / TOKEN_TYPES_FILE, output / REPORT}
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
