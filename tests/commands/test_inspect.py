import subprocess
import sys

import pytest

from delta_trl.cli import main

from ..report import runs


def test_a_run_gets_its_report(tmp_path, capsys):
    run = runs.write_run(tmp_path / "run")
    assert main(["inspect", str(run)]) == 0
    assert capsys.readouterr().out.split() == [str(run / "report.html")]
    assert (run / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.processes
def test_commands_that_need_no_torch_do_without(tmp_path):
    """It takes seconds to import."""
    code = """
import sys
from delta_trl.cli import main

for args in (["--help"], ["--version"], ["train", "--help"], ["inspect", sys.argv[1]]):
    assert main(args) == 0
    assert not {"torch"} & set(sys.modules), args
"""
    subprocess.run([sys.executable, "-c", code, str(runs.write_run(tmp_path / "run"))], check=True, timeout=60)
