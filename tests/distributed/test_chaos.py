"""A short form of `make chaos`: see scripts/chaos.py."""

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


def test_differences_are_noticed():
    assert chaos.differences({"weights": 1, "history": 2}, {"weights": 1, "history": 3}) == [
        "history differs from the undisturbed run's"
    ]
