"""A short form of `make chaos`: see scripts/endurance/chaos.py."""

import os
import random
import subprocess
import sys
import time

import psutil
import pytest

from scripts.endurance import chaos, chaos_machine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "moments", "seed"), [("train", 2, 3), ("eval", 2, 1), ("audit", 2, 1), ("study", 2, 1)]
)
def test_hit_at_random_moments(tmp_path, what, moments, seed):
    report = chaos.Chaos(what, seed, moments, tmp_path, tmp_path / "kept", tuple(chaos.HITS)).run(seconds=300)
    assert not report["problems"], "\n".join(report["problems"])
    assert report["moments"] == sum(report["hits"].values()) == moments
    assert report["runs_compared"]


@pytest.fixture
def machine(tmp_path):
    machine = chaos_machine.Machine(tmp_path)
    yield machine
    machine.mend()
    machine.close()


@pytest.mark.processes
def test_a_turned_clock(machine):
    if not machine.turn_clock(-3600):
        pytest.skip("no C compiler")
    command = [sys.executable, "-c", "import time; print(time.time())"]
    told = subprocess.run(command, env={**os.environ, **machine.environment}, capture_output=True, check=True)
    assert float(told.stdout) - time.time() == pytest.approx(-3600, abs=60)


@pytest.mark.processes
def test_a_full_disk_and_one_that_is_read_only(machine):
    if not machine.fill_disk(left=2_000):
        pytest.skip("nothing may be mounted here")
    with pytest.raises(OSError, match=chaos_machine.NO_FILE):
        (machine.disk / "file").write_bytes(bytes(50_000))
    machine.mend()
    (machine.disk / "file").write_bytes(bytes(50_000))
    with (machine.disk / "open").open("wb"):
        assert not machine.protect_disk(seconds=0.1)
    assert machine.protect_disk()
    with pytest.raises(OSError, match=chaos_machine.NO_FILE):
        (machine.disk / "file").unlink()
    machine.mend()
    (machine.disk / "file").unlink()


CHILD = """
import subprocess, sys, time
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], start_new_session=True)
"""


@pytest.mark.processes
def test_a_launch_whose_processes_outlive_it(machine, tmp_path):
    launch = chaos_machine.Launch([sys.executable, "-c", CHILD + "time.sleep(2)"], tmp_path / "log", machine)
    assert launch.end(30) == 0
    (left,) = launch.left_behind(seconds=0.2)
    assert "time.sleep(100)" in left
    assert not chaos_machine.hit(launch, "clock", random.Random(0))  # it has ended
    launch.kill()
    assert not launch.left_behind(seconds=5)
    launch = chaos_machine.Launch([sys.executable, "-c", CHILD + "time.sleep(100)"], tmp_path / "log", machine)
    while not launch.family("-c", "time.sleep(100)", "import time; time"):
        assert launch.running
        time.sleep(0.05)
    psutil.Process(launch.below()[0].pid).kill()  # which has ended before its turn
    assert chaos_machine.hit(launch, "all", random.Random(0))
    assert not launch.running


@pytest.mark.parametrize(
    ("ours", "place"),
    [
        ({"weights": [1, [2, 3]], "history": [{"loss": 4, "step": 1}]}, "/history/0/loss: 4, and 5"),
        ({"weights": [1, [2, 9]], "history": [{"loss": 5, "step": 1}]}, "/weights/1/1: 9, and 3"),
        ({"weights": [1, [2]], "history": [{"loss": 5, "step": 1}]}, "/weights/1: [2], and [2, 3]"),
        ({"weights": [1, [2, 3]]}, "/history: None, and"),
        ({"weights": [1, [2, 3]], "history": [{"loss": 5, "step": 1}], "more": 0}, "/more: 0, and None"),
    ],
)
def test_differences_are_noticed(ours, place):
    expected = {"weights": [1, [2, 3]], "history": [{"loss": 5, "step": 1}]}
    assert not chaos.differences(expected, expected)
    (told,) = chaos.differences(ours, expected)
    assert told.startswith(place)


def test_a_report_tells_what_it_has_not_tried(tmp_path):
    unfinished = chaos.Chaos("study", 0, 9, tmp_path, tmp_path, tuple(chaos.HITS))
    unfinished.moments = [{"hit": how, "at": "any"} for how in unfinished.hits[:-1]]
    problems = unfinished.report()["problems"]
    assert problems == [f"{unfinished.hits[-1]}: never hit", "stopped after 8 of 9 moments"]


KILLED = "exitcode  : -9 (pid: 12)"


@pytest.mark.parametrize(
    ("how", "status", "said", "wrong"),
    [
        ("rank", None, "", "hangs"),
        ("rank", 0, "", None),
        (None, 1, "Error", "by itself"),
        (None, 0, "", None),
        ("clock", 1, "RuntimeError: the clock", "gone on"),
        ("rank", -9, "", None),  # the process itself
        ("term", -15, "", None),
        ("disk", -7, "", "signal 7"),
        ("rank", -11, "", "signal 11"),
        ("rank", 1, KILLED, None),
        ("rank", 1, "RuntimeError: cannot reshape tensor; exitcode  : 1", "does not say"),
        ("term", 1, "SignalException: Process 7 got signal: 15", None),
        ("disk", 1, "OSError: [Errno 28] No space left on device", None),
        ("full", 1, "OSError: [Errno 27] File too large", None),
        ("read-only", 1, "OSError: [Errno 30] Read-only file system", None),
        ("disk", 1, KILLED, "does not say"),
    ],
)
def test_how_a_launch_may_end(how, status, said, wrong):
    found = chaos.judge(how, status, said)
    assert found is None if wrong is None else wrong in found
