"""`delta-trl COMMAND --help`. Importing what the command runs would take seconds."""

import inspect
from typing import Any

from trl import TrlParser

from ..arguments.credit import CreditArguments
from ..audit.arguments import AuditArguments
from ..evaluation.arguments import EvalArguments
from .arguments import CompareArguments, ExplainArguments
from .recipe import RunArguments


OPTIONS: dict[str, Any] = {
    "train": RunArguments,
    "compare": CompareArguments,
    "eval": EvalArguments,
    "explain": ExplainArguments,
    "audit": AuditArguments,
}


def main(args: list[str]) -> None:
    """Print the options of the command that `args` name."""
    (command,) = args
    described, _, _ = (inspect.getdoc(OPTIONS[command]) or "").partition("Args:")
    usage = f"delta-trl {command} [--config FILE.yaml] [--option value ...]"
    kinds = [OPTIONS[command]]
    if command == "train":
        kinds.append(CreditArguments)
    TrlParser(kinds, usage=usage, description=described).print_help()
