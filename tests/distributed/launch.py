"""Two processes, as a user starts them."""

import os
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).parents[2]


def accelerate_launch(mode: str, script: str, *arguments) -> None:
    """`accelerate launch` with the CPU config of a mode. Raises `AssertionError` with what it printed if it fails."""
    config = ["--config_file", f"accelerate_configs/cpu_{mode}.yaml", "--main_process_port", "0"]
    run([sys.executable, "-m", "accelerate.commands.launch", *config, script, *arguments])


def run(command: list) -> None:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-5000:]
