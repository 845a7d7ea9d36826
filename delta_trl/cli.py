"""The console script `delta-trl`."""

import sys
from collections.abc import Sequence


USAGE = """\
usage: delta-trl train --config RECIPE.yaml [--option value …]

Reinforcement learning from verifiable rewards with DelTA token credit.

  train   train from a recipe; options override its keys (`delta-trl train --help` lists them)

On several processes: accelerate launch --config_file CONFIG scripts/train.py --config RECIPE.yaml
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 for a mistake in the call, 130 when interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if argv else 2
    command, *args = argv
    if command != "train":
        print(f"delta-trl: error: unknown command {command!r}, expected 'train'.", file=sys.stderr)
        return 2

    from .recipe import RecipeError  # TRL takes seconds to import
    from .train import main as train

    try:
        train(args, prog="delta-trl train")
    except RecipeError as error:
        print(f"delta-trl: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "delta-trl: interrupted; `--resume_from_checkpoint true` goes on from the last checkpoint.",
            file=sys.stderr,
        )
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
