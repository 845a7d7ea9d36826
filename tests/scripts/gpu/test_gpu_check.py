"""The kit for a GPU box in its dry form: every stage's file, what a stage leaves to the next run, and the wheels."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.gpu import pack_wheels
from scripts.gpu.stages.stage import STAGES, Stage


ROOT = Path(__file__).parents[3]


def check(*options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "scripts.gpu.check", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=550)


@pytest.mark.slow
def test_every_stage_finishes_a_dry_run(tmp_path):
    run = check("--output-dir", str(tmp_path), "--dry")
    assert run.returncode == 0, run.stdout + run.stderr

    summary = (tmp_path / "summary.md").read_text()
    found = {}
    for name in STAGES:
        content = json.loads((tmp_path / f"{name}.json").read_text())
        assert content["status"] == "finished"
        assert content["dry"]
        assert not content["left_out"]
        assert f"## {name}" in summary
        found[name] = content["results"]
    assert " passed" in found["tests"]["said"]
    for entry in found["overhead"]["cases"]["tiny"].values():
        assert entry["tokens_per_second"] > 0
        assert entry["ratios"] == {"outside": 0, "largest_log": pytest.approx(0, abs=1e-5)}
    assert {row["variant"] for row in found["language"]["rows"]} == {"dapo", "delta"}

    real = check("--output-dir", str(tmp_path), "--stage", "tests")
    assert "is of a dry run: choose another --output-dir" in real.stdout + real.stderr


def test_a_stage_goes_on_from_its_results_with_the_same_settings_only(tmp_path):
    def stage(name="overhead", size=2, **options):
        deadline = time.time() + 100
        return Stage(name, tmp_path, deadline, dry=True, settings={"sizes": (1, size)}, **options)

    first = stage(results={"cases": 3}, left_out=["the rest"])
    first.save("finished")
    saved = json.loads((tmp_path / "overhead.json").read_text())
    assert saved["status"] == "partial"  # something was left out

    second = stage()
    assert second.go_on()
    assert second.results == {"cases": 3}
    assert not stage(size=3).go_on()


def needed(box: Path | None) -> set[str]:
    """What a box needs that has the packages of this list."""
    have = pack_wheels.read_have(box, "3.12")
    return pack_wheels.needed(pack_wheels.requirements(), have, "3.12")


def test_wheels_that_a_box_needs(tmp_path):
    """All but torch and what that brings; of a list, what is not there or too old."""
    of_bare_box = needed(None)
    assert {"trl", "transformers", "datasets", "pyarrow", "peft", "pytest"} < of_bare_box
    assert not {"torch", "sympy", "triton"} & of_bare_box

    new_enough = of_bare_box - {"trl", "transformers"}
    box = tmp_path / "box.txt"
    lines = ["torch", "transformers==4.50", *(f"{name}==99" for name in new_enough)]
    box.write_text("\n".join(lines) + "\n")
    found = needed(box)
    assert {"trl", "transformers"} <= found
    assert not {"pyarrow", "pytest", "numpy"} & found
