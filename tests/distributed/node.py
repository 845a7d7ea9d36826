"""
One of the two nodes of test_nodes.py: runs commands in a folder of its own, and writes down what they print.

    accelerate launch ... tests/distributed/node.py FOLDER
"""

import io
import json
import os
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from delta_trl.cli import main


# options by what is tried
COMMANDS = {
    "nothing here": ["--resume_from_checkpoint", "true"],
    "no model here": ["--resume_from_checkpoint", "true"],
    "new run": ["--output_dir", "new"],
}


def run(folder: Path, rank: int) -> dict[str, dict]:
    """Exit code and output of each command. The second node has no checkpoint, then one without a model."""
    os.chdir(folder / f"node-{rank}")
    said = {}
    for name, options in COMMANDS.items():
        if (name, rank) == ("no model here", 1):  # as `save_on_each_node` leaves it
            checkpoint = "run/checkpoint-2"
            shutil.copytree(folder / "node-0" / checkpoint, checkpoint)
            Path(checkpoint, "model.safetensors").unlink()
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = main(["train", "--config", str(folder / "run.yaml"), *options])
        said[name] = {"code": code, "out": out.getvalue(), "err": err.getvalue()}
    return said


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    said = run(folder, rank)
    (folder / f"said-{rank}.json").write_text(json.dumps(said))
    sys.stdout.flush()
    os._exit(0)  # gloo threads sometimes abort at interpreter exit
