"""Short forms of `make fuzz`."""

import json
import subprocess
import sys

import pytest

from scripts.endurance import fuzz as fuzz_rewards
from scripts.endurance import fuzz_programs

from ...corpus.attacks import ATTACKS


def test_answers_from_the_grammar():
    report = fuzz_rewards.fuzz_answers(120, seed=11, seconds=60)
    assert report["answers"] == 120
    assert not report["failures"]
    assert len(report["kinds"]) == 12  # with soup


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
