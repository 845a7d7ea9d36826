"""The console script `delta-trl`."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from .version import __version__


SECONDS_AFTER_FIRST = 5.0  # seconds
USAGE = """\
usage: delta-trl train --config RECIPE.yaml [--option value …]
       delta-trl inspect RUN_DIR [--output_dir DIR] [--step N]
       delta-trl eval --model_name_or_path MODEL --benchmarks NAME … --output_dir DIR [--option value …]
       delta-trl eval --compare DIR_A DIR_B
       delta-trl explain --model_name_or_path MODEL --data FILE.jsonl --output_dir DIR [--option value …]
       delta-trl audit --model_name_or_path MODEL --benchmarks NAME … --output_dir DIR [--rules NAME …]
       delta-trl --version

Reinforcement learning from verifiable rewards with DelTA token credit.

  train   train from a recipe; options override its keys (`delta-trl train --help` lists ours,
          `--help-all` TRL's, too)
          --dry-run prints the plan of the run without loading weights, and checks local data;
          --num-processes N plans for N processes instead of the number that is running
  inspect write a run's records as one HTML file: a verdict, and completions shaded by token credit
  eval    sample a model on benchmarks or files and score it with the rewards of training;
          --compare tests whether one evaluated model is ahead of another
  explain token credit of completions in a file, without training, as the HTML file of inspect
  audit   do rules of token credit find the tokens that matter, and do their gradients point the right way?

On several processes: accelerate launch --config_file CONFIG scripts/train.py --config RECIPE.yaml
                      accelerate launch -m delta_trl.cli eval …    (and audit)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 for a mistake in the call, 130 when interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if argv else 2
    if argv[0] == "--version":
        print(_versions())
        return 0
    command, *args = argv
    if command not in COMMANDS:
        known = ", ".join(map(repr, COMMANDS))
        print(f"delta-trl: error: unknown command {command!r}, expected one of {known}.", file=sys.stderr)
        return 2

    from .arguments.errors import UsageError

    try:
        COMMANDS[command](args)
    except UsageError as error:
        if os.environ.get("LOCAL_RANK", "0") != "0":
            # The first process reports a mistake that all of them find, and the launcher then ends the others. A
            # mistake of this process alone must still be reported.
            time.sleep(SECONDS_AFTER_FIRST)
        print(f"delta-trl: error: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if "Failed to import trl" not in str(error):
            raise
        print(f"delta-trl: error: {_why_trl_fails(error)}", file=sys.stderr)
        return 2
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "trl":
            raise
        print(f"delta-trl: error: {_all_that_trl_lacks(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"delta-trl: interrupted; {AFTER_INTERRUPT[command]}", file=sys.stderr)
        return 130
    return 0


def _versions() -> str:
    """The versions of this package, TRL, transformers and torch, without importing them; missing ones are left out."""
    from importlib.metadata import PackageNotFoundError, version

    others = []
    for name, package in (("TRL", "trl"), ("transformers", "transformers"), ("torch", "torch")):
        with suppress(PackageNotFoundError):
            others.append(f"{name} {version(package)}")
    return f"delta-trl {__version__}" + (f" ({', '.join(others)})" if others else "")


def _why_trl_fails(error: RuntimeError) -> str:
    """Why TRL cannot be imported. vLLM may have a version that TRL does not support: TRL imports any installed one."""
    from importlib.metadata import PackageNotFoundError, version

    why = f"TRL {version('trl')} cannot be imported ({error.__cause__ or error})."
    try:
        vllm = version("vllm")
    except PackageNotFoundError:
        return why
    return f"{why} vLLM {vllm} is installed: is it a version that this TRL supports? If you do not need it, remove it."


def _all_that_trl_lacks(error: ImportError) -> str:
    """The trainer's error about this TRL, which names more than the first import that has failed."""
    try:
        from . import trainer  # noqa: F401
    except ImportError as refused:
        return str(refused)
    return str(error)


def _train(args: list[str]) -> None:
    from .arguments.options import read_options
    from .commands.checks import check_call, take_dry_run

    options = read_options(args)
    processes = take_dry_run(options)
    check_call(options, dry_run=processes is not None)
    if processes is None:
        from .commands.train import main as train

        train(options)
    elif os.environ.get("RANK", "0") == "0":
        from .commands.dry_run import main as plan

        plan(options, processes)


def _inspect(args: list[str]) -> None:
    from .commands.inspect import main as inspect

    inspect(args)


def _eval(args: list[str]) -> None:
    if "--compare" in args:
        from .evaluation.compare import main as compare

        compare(args)
        return
    from .arguments.options import read_options

    options = read_options(args)
    from .evaluation.evaluate import main as evaluate

    evaluate(options)


def _explain(args: list[str]) -> None:
    from .arguments.options import read_options

    options = read_options(args)
    from .commands.explain import main as explain

    explain(options)


def _audit(args: list[str]) -> None:
    from .arguments.options import read_options

    options = read_options(args)
    from .audit.audit import main as audit

    audit(options)


COMMANDS = {"train": _train, "inspect": _inspect, "eval": _eval, "explain": _explain, "audit": _audit}
AFTER_INTERRUPT = {
    "train": "`--resume_from_checkpoint true` goes on from the last checkpoint, if one was saved.",
    "inspect": "no report was written.",
    "eval": "the same command goes on where it stopped.",
    "explain": "no report was written.",
    "audit": "the same command goes on where it stopped.",
}


if __name__ == "__main__":
    sys.exit(main())
