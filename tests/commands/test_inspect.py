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
        ([run_dir] * 2, "run"),
        ([run_dir, "--colour"], "--colour"),
        ([run_dir, "--step", "8"], "The nearest ones: 0, 9, 19"),
        ([run_dir, "--output_dir", __file__], "cannot be written"),
    ]:
        assert main(["inspect", *args]) == 2, args
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*.tmp"))


def test_inspect_does_without_trl_and_torch(tmp_path):
    """They take seconds to import."""
    code = (
        "import sys; from delta_trl.cli import main; assert main(sys.argv[1:]) == 0; "
        "assert not {'torch', 'trl', 'transformers'} & set(sys.modules)"
    )
    run_dir = runs.write_run(tmp_path / "run")
    subprocess.run([sys.executable, "-c", code, "inspect", str(run_dir)], check=True)
