"""Short forms of `make fuzz`."""

import pytest

from scripts.endurance import fuzz as fuzz_rewards


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
