"""Runs the tests that need a GPU (tests/gpu). In a dry run, those of them that also run on a processor."""

import signal
import subprocess
import sys
from xml.etree import ElementTree

from .stage import ROOT, Stage


def run(stage: Stage) -> None:
    stage.work.mkdir(parents=True, exist_ok=True)
    report, log = stage.work / "tests.xml", stage.work / "tests.log"
    report.unlink(missing_ok=True)
    chosen = ["-m", "not gpu and not processes"] if stage.dry else ["-m", "gpu"]
    command = [sys.executable, "-m", "pytest", "tests/gpu", *chosen, "-p", "no:cacheprovider", f"--junitxml={report}"]
    stage.settings = {"command": command[1:-1]}
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(max(1, stage.left() - 15))
        except subprocess.TimeoutExpired:
            stage.left_out.append("tests after the last one that is listed: no time was left")
        finally:  # an interrupted pytest still writes its report
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
    if not report.is_file():
        raise RuntimeError(f"pytest ended with {process.poll()} and no report: {log.read_text()[-3000:]}")
    stage.results = read_report(ElementTree.parse(report))
    if stage.results["counts"].get("failed"):
        names = [test["name"] for test in stage.results["tests"] if test["outcome"] == "failed"]
        raise RuntimeError(f"{len(names)} tests failed: {', '.join(names)}")


def read_report(report: ElementTree.ElementTree) -> dict:
    tests, counts = [], dict[str, int]()
    for case in report.iter("testcase"):
        found = {"failure": "failed", "error": "failed", "skipped": "skipped"}
        child = next((child for child in case if child.tag in found), None)
        outcome = "passed" if child is None else found[child.tag]
        counts[outcome] = counts.get(outcome, 0) + 1
        test = {"name": case.get("name"), "file": case.get("classname"), "seconds": float(case.get("time") or 0)}
        said = "" if child is None else f"{child.get('message') or ''}\n{(child.text or '')[-2000:]}"
        tests.append({**test, "outcome": outcome, "said": said[:3000]})
    return {"counts": counts, "tests": tests}
