import os
import subprocess
import sys

from delta_trl.cli import main

from ..report import runs


def test_mistakes_in_the_call(tmp_path, capsys):
    run_dir = str(runs.write_run(tmp_path / "run"))
    (tmp_path / "nothing").mkdir()
    for args, message in [
        ([], "RUN_DIR"),
        ([str(tmp_path / "none")], "no such folder"),
        ([str(tmp_path / "nothing")], "log_token_credit"),
        ([run_dir] * 3, "got 3"),
        ([run_dir, "--min-count", "0"], "positive"),
        ([run_dir, "--min-count", "few"], "few"),
        ([run_dir, "--colour"], "--colour"),
        ([run_dir, "--step", "8"], "The nearest ones: 0, 9, 19"),
        ([run_dir, "--step", "8", "--terminal"], "The nearest ones: 0, 9, 19"),
        ([run_dir, run_dir, "--terminal"], "one run"),
        ([run_dir, "--output_dir", __file__], "cannot be written"),
        ([run_dir, "--relative"], "--terminal"),
    ]:
        assert main(["inspect", *args]) == 2, args
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*.tmp"))


def test_a_comparison_leaves_the_report_of_the_run(tmp_path, capsys):
    one, two = (runs.write_run(tmp_path / name, recorded_steps=1) for name in ("one", "two"))
    assert main(["inspect", str(one)]) == main(["inspect", str(one), str(two), "--min_count", "1"]) == 0
    assert capsys.readouterr().out.split() == [str(one / "report.html"), str(one / "report-vs-two.html")]
    assert {file.name for file in one.iterdir() if "report" in file.name} == {"report.html", "report-vs-two.html"}
    assert "<title>one · " in (one / "report.html").read_text()


def test_missing_packages_are_named(tmp_path):
    run_dir = runs.write_run(tmp_path / "run")
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "plotly.py").write_text("raise ImportError('hidden', name='plotly')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'hide'}:{os.getcwd()}"}
    command = [sys.executable, "-m", "delta_trl.cli", "inspect", str(run_dir)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == "delta-trl: error: The report needs plotly: pip install jinja2 plotly wordcloud\n"


def test_inspect_does_without_trl_and_torch(tmp_path):
    """They take seconds to import."""
    code = (
        "import sys; from delta_trl.cli import main; assert main(sys.argv[1:]) == 0; "
        "assert not {'torch', 'trl', 'transformers'} & set(sys.modules)"
    )
    run_dir = runs.write_run(tmp_path / "run")
    subprocess.run([sys.executable, "-c", code, "inspect", str(run_dir)], check=True)
