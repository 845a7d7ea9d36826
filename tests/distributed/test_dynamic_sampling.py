"""Dynamic sampling on two gloo processes against one: the same groups, in training and in the logs."""

import json

import pytest

from . import sampling
from .launch import accelerate_launch


pytestmark = pytest.mark.processes


@pytest.mark.parametrize("mode", ["ddp", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("fsdp2", "zero3"))])
def test_two_processes_sample_what_one_does(tmp_path, mode):
    accelerate_launch(mode, "tests/distributed/sampling.py", tmp_path / "two")
    two, other = (json.loads((tmp_path / "two" / f"{rank}.json").read_text()) for rank in range(2))
    one = sampling.main(tmp_path / "one", 1)
    assert len({entry["dynamic_sampling/prompts"] for entry in one["whole"]}) > 1
    same_logs(two["whole"], one["whole"])
    same_logs(two["resumed"], two["whole"])
    same_logs(other["whole"], two["whole"])
    for rows, expected_rows in zip(two["tables"], one["tables"], strict=True):
        for row, expected in zip(rows, expected_rows, strict=True):
            assert row == pytest.approx(expected, abs=1e-4, nan_ok=True)


def same_logs(ours: list[dict], theirs: list[dict]):
    names = [name for name in theirs[0] if "time" not in name and "seconds" not in name]
    for entry, expected in zip(ours, theirs, strict=True):
        assert [entry[name] for name in names] == pytest.approx([expected[name] for name in names], abs=1e-4)
