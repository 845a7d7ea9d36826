"""The kit for a GPU box in its dry form: every stage's file, what is left when one is interrupted, and the wheels."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from scripts.gpu import pack_wheels
from scripts.gpu.stages.stage import STAGES, Stage


ROOT = Path(__file__).parents[3]


def gpu_check(folder: Path, *args: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "scripts.gpu.check", "--output-dir", str(folder), *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes, **options)


def told(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=550)
    return output


@pytest.mark.slow
def test_every_stage(tmp_path):
    process = gpu_check(tmp_path, "--dry")
    output = told(process)
    assert process.returncode == 0, output
    found = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in STAGES}
    for name, row in found.items():
        assert row["machine"]["torch"] == torch.__version__
        assert (row["stage"], row["status"], row["dry"], row["left_out"]) == (name, "finished", True, []), output
    assert " passed" in found["tests"]["results"]["said"]
    overhead = found["overhead"]["results"]["cases"]
    assert {"tiny", "tiny, LoRA"} <= overhead.keys() <= {"tiny", "tiny, LoRA", "tiny, flash"}
    for entry in overhead["tiny"].values():
        low, high = entry["seconds"]["quartiles"]
        assert low <= entry["seconds"]["median"] <= high
        assert entry["tokens_per_second"] > 0
        assert entry["ratios"] == {"outside": 0, "largest_log": pytest.approx(0, abs=1e-5)}
    assert {row["variant"] for row in found["language"]["results"]["rows"]} == {"dapo", "delta", "losers_0.2"}
    page = (tmp_path / "summary.md").read_text()
    assert "A dry run" in page
    assert all(f"## {name}" in page for name in STAGES)
    assert page.strip() in output

    again = told(gpu_check(tmp_path, "--dry"))
    assert again.count("skipped") == len(STAGES)
    real = gpu_check(tmp_path, "--stage", "tests")
    assert "is of a dry run: choose another --output-dir" in told(real)
    assert real.returncode == 1


@pytest.mark.slow
def test_an_interrupted_stage_goes_on(tmp_path):
    process, path = gpu_check(tmp_path, "--dry", "--stage", "overhead"), tmp_path / "overhead.json"
    while not path.is_file():  # until something is measured
        assert process.poll() is None, told(process)
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    told(process)
    row = json.loads(path.read_text())
    assert (row["status"], row["error"]) == ("partial", "interrupted")
    first = row["results"]["cases"]["tiny"]["grpo"]["runs"]
    assert "| overhead | partial |" in (tmp_path / "summary.md").read_text()

    told(gpu_check(tmp_path, "--dry", "--stage", "overhead"))
    row = json.loads(path.read_text())
    assert (row["status"], row["error"]) == ("finished", None)
    assert row["results"]["cases"]["tiny"]["grpo"]["runs"] == first


def test_what_a_stage_leaves_to_the_next_run(tmp_path):
    def stage(name="overhead", size=2, **options):
        return Stage(name, tmp_path, time.time() + 100, dry=True, settings={"sizes": (1, size)}, **options)

    stage(results={"cases": 3}, left_out=["the rest"]).save("finished")
    assert json.loads((tmp_path / "overhead.json").read_text())["status"] == "partial"  # something was left out
    second = stage()
    assert second.go_on()
    assert second.results == {"cases": 3}
    assert not stage(size=3).go_on()
    assert not stage("language").go_on()


# --- wheels ---


def test_what_a_box_needs(tmp_path):
    """All but torch and what that brings; of a list, whatever is there and new enough is not needed."""
    bare = pack_wheels.needed(pack_wheels.requirements(), pack_wheels.read_have(None, "3.12"), "3.12")
    assert {"trl", "transformers", "datasets", "pyarrow", "antlr4-python3-runtime", "peft", "pytest"} < bare
    assert not {"torch", "sympy", "jinja2", "triton"} & bare
    pins = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().split()}
    assert bare <= set(map(pack_wheels.canonical, pins))
    box = tmp_path / "box.txt"
    have = dict.fromkeys(bare | {"torch"}, "99") | {"transformers": "4.50", "huggingface_hub": "1.40.0"}
    box.write_text("".join(f"{name}=={version}\n" for name, version in have.items() if name != "trl") + "pyarrow\n")
    found = pack_wheels.needed(pack_wheels.requirements(), pack_wheels.read_have(box, "3.12"), "3.12")
    assert {"trl", "transformers"} <= found
    assert not {"pyarrow", "huggingface-hub", "pytest", "numpy"} & found
