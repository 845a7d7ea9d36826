"""Short forms of `make fuzz`."""

import json
import subprocess
import sys

import pytest

from scripts.endurance import fuzz as fuzz_rewards
from scripts.endurance import fuzz_programs

from ...corpus.attacks import ATTACKS


@pytest.mark.parametrize(("kind", "count"), [("answers", 80), ("programs", 20)])
def test_nothing_fails(kind, count):
    report = getattr(fuzz_rewards, f"fuzz_{kind}")(count, seed=11, seconds=60)
    assert report[kind] == count
    assert not report["failures"]
    assert kind == "programs" or len(report["kinds"]) == 12  # with soup


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


def test_the_fuzzer_notices_a_grader_that_leaks(monkeypatch):
    attack = next(one for one in ATTACKS if one[0] == "harness: frames under test")
    monkeypatch.setattr(
        fuzz_rewards, "breed", lambda attacks, lasting, rng: (*attack[:2], fuzz_programs.unguessable(attack[2], rng))
    )
    assert not fuzz_rewards.fuzz_programs(1, seed=0, seconds=60)["failures"]
    monkeypatch.setattr(fuzz_rewards, "grade", leak)
    (failure,) = fuzz_rewards.fuzz_programs(1, seed=0, seconds=60)["failures"]
    assert failure["name"] == attack[0]


def test_what_is_not_done_is_no_success(tmp_path, capsys):
    arguments = ["--answers", "2", "--programs", "0", "--seconds", "0", "--failures", str(tmp_path / "failures")]
    assert fuzz_rewards.main(arguments) == 1
    assert "2 were not done" in capsys.readouterr().out
