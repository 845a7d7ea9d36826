"""A short form of `make chaos`: see scripts/chaos.py."""

import os
import subprocess
import sys
import time

import chaos
import pytest


@pytest.mark.processes
@pytest.mark.parametrize(
    ("what", "moments", "seed"), [("train", 3, 3), ("eval", 3, 1), ("audit", 2, 1), ("study", 2, 1)]
)
def test_hit_at_random_moments(tmp_path, what, moments, seed):
    report = chaos.run(what, moments, seed, seconds=200, folder=tmp_path)
    assert not report["problems"], "\n".join(report["problems"])
    assert report["moments"]
    assert report["runs_compared"]


@pytest.fixture
def machine(tmp_path):
    machine = chaos.Machine(tmp_path)
    yield machine
    machine.close()


@pytest.mark.processes
def test_a_turned_clock(machine):
    if not machine.turn_clock(-3600):
        pytest.skip("no C compiler")
    command = [sys.executable, "-c", "import time; print(time.time())"]
    told = subprocess.run(command, env={**os.environ, **machine.environment}, capture_output=True, check=True)
    assert float(told.stdout) - time.time() == pytest.approx(-3600, abs=60)


@pytest.mark.processes
def test_a_full_disk(machine):
    if not machine.fill_disk(left=2_000):
        pytest.skip("nothing may be mounted here")
    with pytest.raises(OSError, match="No space left"):
        (machine.disk / "file").write_bytes(bytes(50_000))
    machine.mend()
    (machine.disk / "file").write_bytes(bytes(50_000))


def test_differences_are_noticed():
    assert chaos.differences({"weights": 1, "history": 2}, {"weights": 1, "history": 3}) == [
        "history differs from the undisturbed run's"
    ]
