import subprocess
import sys
from email import message_from_bytes
from fnmatch import fnmatch
from pathlib import Path
from zipfile import ZipFile

import delta_trl


ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_the_package_alone(tmp_path):
    """The one that this working tree makes."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True)
    [path] = tmp_path.glob("*.whl")
    wheel = ZipFile(path)
    names = wheel.namelist()

    [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
    assert message_from_bytes(wheel.read(metadata))["Version"] == delta_trl.__version__

    files = set()
    for path in (ROOT / "delta_trl").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            files.add(str(path.relative_to(ROOT)))
    assert {name for name in names if ".dist-info/" not in name} == files


def test_what_the_package_does_not_have_is_no_attribute():
    assert hasattr(delta_trl, "DeltaGRPOTrainer")
    assert not hasattr(delta_trl, "DeltaTrainer")


def test_no_folder_of_tests_is_passed_over(pytestconfig):
    """As pytest would pass over scripts/build, and say nothing."""
    patterns = pytestconfig.getini("norecursedirs")
    for file in (ROOT / "tests").rglob("test_*.py"):
        for folder in file.relative_to(ROOT).parent.parts:
            assert not any(fnmatch(folder, pattern) for pattern in patterns), file
