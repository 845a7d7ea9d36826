"""`delta-trl COMMAND --help`. Importing what the command runs would take seconds."""

from trl import TrlParser

from ..evaluation.arguments import AuditArguments, EvalArguments, ExplainArguments
from .recipe import RunArguments


OPTIONS = {
    "train": RunArguments,
    "eval": EvalArguments,
    "explain": ExplainArguments,
    "audit": AuditArguments,
}
OF_TRAINING = """\
Options of token credit (token_credit, token_credit_kwargs, dynamic_sampling, log_token_credit, ...) are described in
docs/token_credit.md. All of TRL's GRPOConfig and ModelConfig are options, too:
https://huggingface.co/docs/trl/grpo_trainer. --dry_run [--num_processes N] plans the run.
"""


def main(args: list[str]) -> None:
    """Print the options of the command that `args` name."""
    (command,) = args
    usage = f"delta-trl {command} [--config FILE.yaml] [--option value ...]"
    epilog = OF_TRAINING if command == "train" else None
    TrlParser(OPTIONS[command], usage=usage, epilog=epilog).print_help()
