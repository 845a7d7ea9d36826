"""Short forms of `make fuzz` and `make soak`, and what the long forms have found."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.endurance import fuzz as fuzz_rewards
from scripts.endurance import fuzz_programs
from scripts.endurance import soak as soak_rewards

from ...corpus.attacks import ATTACKS
from ...distributed.launch import accelerate_launch


def test_answers_from_the_grammar():
    report = fuzz_rewards.fuzz_answers(120, seed=11, seconds=60)
    assert report["answers"] == 120
    assert not report["failures"]
    assert len(report["kinds"]) == 21


def test_bred_programs_fail(tmp_path):
    report = fuzz_rewards.fuzz_programs(60, seed=11, seconds=60)
    assert report["programs"] == 60
    assert not report["failures"]


def test_the_fuzzers_notice():
    """A grader that is wrong, and tests that a program can guess."""
    assert fuzz_rewards.main(["--answers", "0", "--programs", "0", "--failures", "/dev/null"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuzz_rewards, "draw", lambda rng: ("wrong", "7", r"\boxed{8}", 1.0))
        (failure, _) = fuzz_rewards.fuzz_answers(2, seed=0, seconds=60)["failures"]
        assert (failure["score"], failure["verdict"]) == (0.0, "wrong")
        patch.setattr(fuzz_rewards, "breed", lambda *_: ("guessed", "print(5)", {"inputs": [""], "outputs": ["5"]}))
        (failure,) = fuzz_rewards.fuzz_programs(1, seed=0, seconds=60)["failures"]
        assert failure["name"] == "guessed"


# A grader that runs programs in the process that knows the answer.
LEAK = """
import contextlib, io, json, sys
program, tests = json.load(sys.stdin)
said, names = io.StringIO(), {}
with contextlib.redirect_stdout(said):
    exec(program, names)
if "test" in tests:
    exec(tests["test"] + "check(f)", names)
else:
    assert said.getvalue().split() == tests["outputs"]
"""


def leak(reward, host, attack) -> tuple[float, str, float]:
    done = subprocess.run([sys.executable, "-c", LEAK], input=json.dumps(attack[1:]), text=True, capture_output=True)
    return float(done.returncode == 0), "leaked", 0.0


@pytest.mark.parametrize("name", ["harness: frames", "harness: frames under test"])
def test_the_fuzzer_notices_a_grader_that_leaks(name, monkeypatch):
    attack = next(one for one in ATTACKS if one[0] == name)
    monkeypatch.setattr(
        fuzz_rewards, "breed", lambda attacks, lasting, rng: (*attack[:2], fuzz_programs.unguessable(attack[2], rng))
    )
    assert not fuzz_rewards.fuzz_programs(1, seed=0, seconds=60)["failures"]
    monkeypatch.setattr(fuzz_rewards, "grade", leak)
    (failure,) = fuzz_rewards.fuzz_programs(1, seed=0, seconds=60)["failures"]
    assert failure["name"] == name


def test_what_is_not_done_is_no_success(tmp_path, capsys):
    arguments = ["--answers", "2", "--programs", "0", "--seconds", "0", "--failures", str(tmp_path / "failures")]
    assert fuzz_rewards.main(arguments) == 1
    assert "2 were not done" in capsys.readouterr().out


@pytest.mark.slow  # and alone: on a busy machine, ordinary checks run out of time, which is a failure
def test_a_short_soak_is_flat(tmp_path, capsys):
    output = str(tmp_path / "soak")
    arguments = "--math 160 --code 80 --batch 10 --hostile 0.01 --warm_ups 0 --output".split()
    arguments.append(output)
    assert soak_rewards.main(arguments) == 0, capsys.readouterr().out
    numbers = json.loads(Path(f"{output}.json").read_text())
    assert [run["host_unchanged"] for run in numbers["runs"]] == [True]
    assert {one["checks"] for one in numbers["runs"][0]["samples"]} == {"math", "code"}
    assert Path(f"{output}.png").stat().st_size


def test_growth_is_noticed():
    flat = {
        **{"in_use_mb": 17, "blocks": 400_000, "workers_mb": 70, "descriptors": 20, "processes": 2, "files": 0},
        **{"checks": "math", "memory_mb": 100, "median_seconds_per_1000": 5},
    }
    steps = {
        **{"memory_mb": 3, "in_use_mb": 0.2, "blocks": 1000, "workers_mb": 4, "descriptors": 0.2, "processes": 0.2},
        **{"files": 0.2, "median_seconds_per_1000": 1},
    }

    def grown(samples: list[dict]) -> list[str]:
        return [line.partition(" from")[0] for line in soak_rewards.growth(samples)]

    assert not grown([flat] * 40)
    for key, step in steps.items():
        assert grown(
            [{**flat, key: flat[key] + int(step * k) if step == 0.2 else flat[key] + step * k} for k in range(40)]
        ) == [f"math: {key}"]
    elsewhere = {key: value for key, value in flat.items() if key != "in_use_mb"}  # another C library
    assert not grown([elsewhere] * 40)


def test_a_soak_that_says_nothing_is_a_problem():
    run = {
        **{"options": {"math": 2000, "code": 0}, "done": {"math": 2000}, "samples": [], "unexpected": []},
        **{"ordinary": 1900, "not_checked": 1, "timed_out": 9, "host_unchanged": True},
    }
    assert not soak_rewards.problems_of(run)
    for change, words in (
        ({"done": {"math": 1960}}, "stopped after 1960 of 2000"),
        ({"done": {}}, "stopped after 0 of 2000"),
        ({"not_checked": 2}, "not_checked: 2 of 1900"),
        ({"timed_out": 10}, "timed_out: 10 of 1900"),
        ({"unexpected": ["wrong"]}, "wrong"),
        ({"host_unchanged": False}, "the host was changed"),
    ):
        (problem,) = soak_rewards.problems_of(run | change)
        assert words in problem


@pytest.mark.slow
def test_a_soak_in_two_processes(tmp_path):
    output = tmp_path / "soak"
    options = "--math 80 --code 40 --batch 10 --hostile 0.01 --warm_ups 0 --timeout 5 --output".split()
    accelerate_launch("ddp", "-m", "scripts.endurance.soak", *options, output)
    runs = json.loads(output.with_suffix(".json").read_text())["runs"]
    assert [run["options"]["seed"] for run in runs] == [0, 1]
    assert [run["done"] for run in runs] == [{"math": 80, "code": 40}] * 2


@pytest.mark.slow
def test_a_soak_that_is_stopped_writes_what_it_has(tmp_path):
    output = tmp_path / "soak"
    command = f"{sys.executable} -m scripts.endurance.soak --math 2000 --code 0 --batch 10 --output {output}".split()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(6)
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "math: stopped after" in said
    assert json.loads(output.with_suffix(".json").read_text())["runs"][0]["done"]["math"] > 0
