"""Runs the tests that need a GPU (tests/gpu). In a dry run, some of those that also run on a processor."""

import signal
import subprocess
import sys

from .stage import ROOT, Stage


def run(stage: Stage) -> None:
    # first what has never run on a GPU
    never = ["tests/gpu/test_packing.py", "tests/gpu/test_exact.py"]
    chosen = ["tests/gpu/test_products.py"] if stage.dry else [*never, "tests/gpu", "-m", "gpu"]
    command = [sys.executable, "-m", "pytest", *chosen, "-p", "no:cacheprovider"]
    stage.settings = {"command": command[1:]}
    stage.work.mkdir(parents=True, exist_ok=True)
    log = stage.work / "tests.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(max(1, stage.left() - 15))
        except subprocess.TimeoutExpired:
            stage.leave_out("tests after the last one that is listed: no time was left")
        finally:  # an interrupted pytest still says what it has done
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
    said = log.read_text()
    stage.results = {"said": said[-8000:]}
    _, _, summary = said.rpartition("short test summary info")
    stage.text = f"```\n{summary[-2000:]}\n```"
    if process.returncode and not stage.left_out:
        raise RuntimeError(f"pytest ended with {process.returncode}: {log}")
