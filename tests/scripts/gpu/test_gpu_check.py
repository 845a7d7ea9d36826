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


@pytest.mark.slow
def test_every_stage_finishes_a_dry_run(tmp_path):
    command = [sys.executable, "-m", "scripts.gpu.check", "--output-dir", str(tmp_path)]
    run = subprocess.run([*command, "--dry"], cwd=ROOT, capture_output=True, text=True, timeout=550)
    assert run.returncode == 0, run.stdout + run.stderr
    found = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in STAGES}
    assert {(row["status"], row["dry"], *row["left_out"]) for row in found.values()} == {("finished", True)}
    assert " passed" in found["tests"]["results"]["said"]
    for entry in found["overhead"]["results"]["cases"]["tiny"].values():
        assert entry["tokens_per_second"] > 0
        assert entry["ratios"] == {"outside": 0, "largest_log": pytest.approx(0, abs=1e-5)}
    assert {row["variant"] for row in found["language"]["results"]["rows"]} == {"dapo", "delta"}
    assert all(f"## {name}" in (tmp_path / "summary.md").read_text() for name in STAGES)
    real = subprocess.run([*command, "--stage", "tests"], cwd=ROOT, capture_output=True, text=True, timeout=550)
    assert "is of a dry run: choose another --output-dir" in real.stdout + real.stderr


def test_a_stage_goes_on_from_its_results_with_the_same_settings_only(tmp_path):
    def stage(name="overhead", size=2, **options):
        return Stage(name, tmp_path, time.time() + 100, dry=True, settings={"sizes": (1, size)}, **options)

    stage(results={"cases": 3}, left_out=["the rest"]).save("finished")
    assert json.loads((tmp_path / "overhead.json").read_text())["status"] == "partial"  # something was left out
    second = stage()
    assert second.go_on()
    assert second.results == {"cases": 3}
    assert not stage(size=3).go_on()


def test_wheels_that_a_box_needs(tmp_path):
    """All but torch and what that brings; of a list, what is not there or too old."""
    bare = pack_wheels.needed(pack_wheels.requirements(), pack_wheels.read_have(None, "3.12"), "3.12")
    assert {"trl", "transformers", "datasets", "pyarrow", "peft", "pytest"} < bare
    assert not {"torch", "sympy", "triton"} & bare
    box = tmp_path / "box.txt"
    box.write_text("".join(f"{name}==99\n" for name in bare - {"trl", "transformers"}) + "torch\ntransformers==4.50\n")
    found = pack_wheels.needed(pack_wheels.requirements(), pack_wheels.read_have(box, "3.12"), "3.12")
    assert {"trl", "transformers"} <= found
    assert not {"pyarrow", "pytest", "numpy"} & found
