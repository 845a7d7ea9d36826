import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

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
