import os
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import torch

import delta_trl


ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_the_package_alone(tmp_path):
    """The one that this working tree makes."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    [path] = tmp_path.glob("*.whl")
    wheel, package = ZipFile(path), ROOT / "delta_trl"
    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    assert message_from_bytes(wheel.read(metadata))["Version"] == delta_trl.__version__
    files = {str(path.relative_to(ROOT)) for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == files


def test_tests_run_on_one_thread_however_they_are_started():
    """As `make test` has it, which exports the variable; by itself torch takes a thread for each core."""
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
