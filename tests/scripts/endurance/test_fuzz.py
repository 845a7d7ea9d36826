"""Short forms of `make fuzz`."""

import pytest

from scripts.endurance import fuzz as fuzz_rewards


@pytest.mark.parametrize(("kind", "count"), [("answers", 80), ("programs", 20)])
def test_nothing_fails(kind, count):
    report = fuzz_rewards.FUZZERS[kind](count, seed=12, seconds=60)
    assert report["done"] == count
    assert not report["failures"]
    assert kind == "programs" or len(report["kinds"]) == 12  # with soup


def test_the_fuzzers_notice_a_wrong_verdict_and_a_guessed_program(monkeypatch):
    """A grader that is wrong, and tests that a program can guess."""
    monkeypatch.setattr(fuzz_rewards, "draw", lambda rng: ("wrong", "7", r"\boxed{8}", 1.0))
    assert fuzz_rewards.fuzz_answers(1, seed=0, seconds=60)["failures"][0]["verdict"] == "wrong"
    monkeypatch.setattr(fuzz_rewards, "breed", lambda *_: ("guessed", "print(5)", {"inputs": [""], "outputs": ["5"]}))
    assert fuzz_rewards.fuzz_programs(1, seed=0, seconds=60)["failures"][0]["name"] == "guessed"
