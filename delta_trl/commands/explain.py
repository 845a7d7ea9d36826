"""`delta-trl explain`."""

import argparse
import os
import re
from pathlib import Path

from ..arguments.command_line import CommandParser
from ..arguments.errors import RecipeError
from ..explain.data import read_rows
from ..report.token_log.records import COMPLETIONS_FILE, FOLDER, TOKEN_TYPES_FILE


DESCRIPTION = """\
Token credit of completions that you already have, by any causal language
model, without training.

Every line of FILE is a JSON object, such as

  {"prompt": "2+3=", "completion": "5", "reward": 1.0}
  {"prompt": "2+3=", "completion": "6", "reward": 0.0}

A prompt may be a list of chat messages, a reward null where it is not known.
Completions of the same prompt are a group: their rewards become advantages as
in GRPO. The coefficients are those that DelTA would train with if the file
were one rollout batch, sampled from the model at temperature 1. Writes what
training records, and the report of `delta-trl inspect` over it.
"""
EXAMPLE = """\
example:
  delta-trl explain --model Qwen/Qwen3-0.6B --data completions.jsonl \\
                    --output outputs/explained
"""
REPORT = "report.html"


def main(args: list[str]) -> None:
    """Compute the token credit of a file's completions, and write it. Raises `RecipeError` for a mistake."""
    parser = CommandParser(
        prog="delta-trl explain",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s --model MODEL --data FILE --output DIR [--option …]",
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    parser.add_argument("--model", help="hub id or folder of a causal language model, or of a PEFT adapter of one")
    parser.add_argument("--data", type=Path, metavar="FILE", help="JSON lines: prompt, completion, reward")
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"folder for the records and {REPORT}")
    parser.add_argument("--overwrite", action="store_true", help="replace what this command wrote there before")
    parser.add_argument(
        "--rule",
        default="delta",
        metavar="NAME[:OPTION=VALUE,…]",
        help="as in recipes, such as delta:token_gradient=lm_head or your_module.YourRule (%(default)s)",
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
    for name in ("model", "data", "output"):
        if not getattr(options, name):
            parser.error(f"--{name} is missing. `{parser.prog} --help` shows an example.")
    for name in ("batch_size", "min_count"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: expected a positive number.")
    _check_model(options.model)
    rows = read_rows(options.data)
    _check_output(options.output, options.overwrite)
    # torch and transformers take seconds to import: what can be found without them was
    from ..explain.explain import explain

    print(explain(rows, options))


def _check_model(model: str) -> None:
    """Raise `RecipeError` for what is neither a model's folder nor can be a hub id."""
    if Path(model).is_dir():
        if not any(Path(model, name).is_file() for name in ("config.json", "adapter_config.json")):
            raise RecipeError(f"--model {model}: no model in this folder, it has no config.json.")
    elif not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", model) or Path(model).exists():
        raise RecipeError(f"--model {model}: no such folder, and not a hub id (NAME or OWNER/NAME).")


def _check_output(output: Path, overwrite: bool) -> None:
    """Raise `RecipeError` if nothing can be written there, or what is there would be lost or mixed."""
    folder = output / FOLDER
    existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise RecipeError(f"--output {output}: {existing} is not a folder that can be written to.")
    ours = [folder / COMPLETIONS_FILE.format(step=0), folder / TOKEN_TYPES_FILE, output / REPORT]
    there = [path for path in ours if path.exists()]
    patterns = ("trainer_state.json", "checkpoint-*", "completions/*.parquet", f"{FOLDER}/*.parquet")
    foreign = [path for pattern in patterns for path in sorted(output.glob(pattern)) if path not in ours]
    if foreign:
        raise RecipeError(
            f"--output {output}: holds {foreign[0].relative_to(output)}, as of a training run, whose records would be "
            "mixed with these. Give another folder."
        )
    if there and not overwrite:
        raise RecipeError(
            f"--output {output}: holds {there[0].relative_to(output)} already. Give another folder, or --overwrite to "
            "replace it."
        )
