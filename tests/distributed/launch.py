"""Two processes, as a user starts them."""

import os
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).parents[2]


def accelerate_launch(config: str, *command, options: str = "--main_process_port 0") -> None:
    """`accelerate launch` with a file of accelerate_configs/."""
    launch = f"-m accelerate.commands.launch --config_file accelerate_configs/{config}.yaml {options}"
    run([sys.executable, *launch.split(), *command])


def run(command: list) -> None:
    """Raises `AssertionError` with what it printed if it fails."""
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
