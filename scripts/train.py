"""The script for `accelerate launch --config_file CONFIG scripts/train.py --config RECIPE.yaml`."""

import sys

from delta_trl.cli import main


if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
