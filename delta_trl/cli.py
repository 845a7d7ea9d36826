"""The console script `delta-trl`."""

import importlib
import os
import sys
from collections.abc import Sequence

from .arguments.errors import UsageError, in_users_code
from .version import __version__


USAGE = """\
usage: delta-trl COMMAND [--config FILE.yaml] [--option value …]

Reinforcement learning from verifiable rewards with DelTA token credit.

  train   train from a recipe; options override its keys. --dry_run [--num_processes N] prints the plan of the run
          without loading weights, and checks local data
  compare train with a rule, without it and with its controls, over several seeds: does the rule help?
  inspect RUN_DIR: a run's records as one HTML file: the reward, and completions shaded by token credit
  eval    sample a model on benchmarks or files and score it with the rewards of training;
          --compare DIR_A DIR_B: is one evaluated model ahead of another?
  explain token credit of completions in a file, without training, as the HTML file of inspect
  audit   do rules of token credit find the tokens that matter?

`delta-trl COMMAND --help` lists the options of a command; `delta-trl --version`.

On several processes: accelerate launch --config_file CONFIG -m delta_trl train --config RECIPE.yaml
"""
# The modules whose `main` runs a command, and what a word in its call runs instead
COMMANDS = {
    "train": "commands.train",
    "compare": "commands.compare",
    "inspect": "commands.inspect",
    "eval": "evaluation.evaluate",
    "explain": "commands.explain",
    "audit": "audit.audit",
}
VARIANTS = {
    ("train", "--dry_run"): "commands.dry_run",
    ("train", "--dry-run"): "commands.dry_run",
    ("eval", "--compare"): "evaluation.two_models",
}
HELP = {"-h", "--help"}


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run a command and return its exit code: 0, 2 for a mistake in the call, 1 for an error of a reward or a rule of the
    user's, 130 when interrupted.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return run(argv)
    except UsageError as error:
        print(f"delta-trl: error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if not (message := in_users_code(error)):
            raise
        print(f"delta-trl: error: {message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("delta-trl: interrupted", file=sys.stderr)
        return 130


def run(argv: list[str]) -> int:
    """See [`main`]. Raises `UsageError` for a mistake in the call."""
    if not argv or argv[0] in HELP:
        print(USAGE)
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"delta-trl {__version__}")
        return 0
    command, *args = argv
    if command not in COMMANDS:
        raise UsageError(f"unknown command {command!r}, not one of {', '.join(COMMANDS)}.")
    if command != "train" and os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError(f"{command} runs in a single process. Start it without a launcher.")
    module = COMMANDS[command]
    for word in args:
        module = VARIANTS.get((command, word), module)
    if command != "inspect" and HELP & set(args):
        module, args = "commands.help", [command]
    importlib.import_module(f"delta_trl.{module}").main(args)
    return 0
