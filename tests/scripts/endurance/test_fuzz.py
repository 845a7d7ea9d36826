"""Short forms of `make fuzz`."""

from scripts.endurance import fuzz as fuzz_rewards


def test_no_answer_fails():
    report = fuzz_rewards.FUZZERS["answers"](80, seed=12, seconds=60)
    assert report["done"] == 80
    assert not report["failures"]
    assert len(report["kinds"]) == 12  # with soup


def test_no_program_fails():
    report = fuzz_rewards.FUZZERS["programs"](20, seed=12, seconds=60)
    assert report["done"] == 20
    assert not report["failures"]


def test_the_fuzzers_notice_a_wrong_verdict(monkeypatch):
    labelled_right = ("kind", "7", r"\boxed{8}", 1.0)
    monkeypatch.setattr(fuzz_rewards, "draw", lambda rng: labelled_right)
    report = fuzz_rewards.fuzz_answers(1, seed=0, seconds=60)
    assert report["failures"][0]["verdict"] == "wrong"


def test_the_fuzzers_notice_a_guessed_program(monkeypatch):
    tests = {"inputs": [""], "outputs": ["5"]}
    guessed = ("guessed", "print(5)", tests)
    monkeypatch.setattr(fuzz_rewards, "breed", lambda *_: guessed)
    report = fuzz_rewards.fuzz_programs(1, seed=0, seconds=60)
    assert report["failures"][0]["name"] == "guessed"
