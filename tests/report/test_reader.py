"""Reading run directories: what is there, what is not, and what is broken."""

import math

import numpy as np
import pytest

from delta_trl.arguments.errors import UsageError
from delta_trl.cli import main
from delta_trl.report import read_run
from delta_trl.report.token_log.records import recorded_files

from . import runs


def test_recorded_numbers_are_read_as_they_were_written(tmp_path):
    numbers = {"coefficients": [0.5, 1.5], "log_probs": [-0.5, -0.25], "entropies": [0.5, 0.75]}  # exact in float32
    known = runs.completion(["a", "b"], **numbers, advantage=-0.5)
    unknown = {"log_probs": None, "entropies": None, "reward": None, "rewards": [("a", None), ("b", 1.0)]}
    same_names = {"entropies": [None, 0.5], "rewards": [("same", 0.5), ("same", 1.0)], "prompt_index": 1}
    rows = [known, known | unknown, known | same_names, runs.completion([], step=20)]
    runs.write_completions(tmp_path, rows)
    groups = read_run(tmp_path).groups
    assert [(group.step, len(group.completions)) for group in groups] == [(0, 2), (0, 1), (20, 1)]
    read = [c for group in groups for c in group.completions]
    for row, c in zip(rows, read, strict=True):
        assert (c.reward, c.rewards, c.advantage) == (row["reward"], row["rewards"], row["advantage"])
        assert list(c.tokens) == row["tokens"]
        for name in numbers:
            expected = row[name] or [None] * len(row["tokens"])
            np.testing.assert_array_equal(getattr(c, name), np.array(expected, dtype=float))


def test_the_history_that_goes_furthest(tmp_path):
    """Whatever the times of its files, as in a copied folder."""

    def last_step() -> int:
        return read_run(tmp_path).history[-1]["step"]

    def write(path, end):
        steps = range(20, end + 1, 20)
        runs.write_history(path, steps, reward=[step / 200 for step in steps], loss=[math.nan] * len(steps))

    for step in (20, 100, 40):
        write(tmp_path / f"checkpoint-{step}", step)
    (tmp_path / "checkpoint-120").mkdir()  # cut off before its state was written
    assert last_step() == 100
    write(tmp_path, 140)
    assert last_step() == 140
    state = tmp_path / "trainer_state.json"
    state.write_text(state.read_text()[:50])  # killed in a save
    assert last_step() == 100


def test_a_branch_that_was_given_up_is_not_shown(tmp_path):
    """A run of 100 steps that resumed from its step 20, and collapsed."""
    rise = [0.1, 0.2, 0.3, 0.4, 0.5]
    for count in (1, 5):
        runs.write_history(tmp_path / f"checkpoint-{20 * count}", range(20, 20 * count + 1, 20), reward=rise[:count])
    runs.write_history(tmp_path, range(20, 101, 20), reward=rise)
    for count in (2, 3):
        steps = range(20, 20 * count + 1, 20)
        runs.write_history(tmp_path / f"checkpoint-{20 * count}", steps, reward=[0.1, 0.0, 0.0][:count])
    assert read_run(tmp_path).logged("reward").tolist() == [0.1, 0.0, 0.0]


def test_a_broken_record_is_named(tmp_path, capsys):
    run_dir = runs.write_run(tmp_path / "run", recorded_steps=2)
    file = recorded_files(run_dir)[0]
    file.write_bytes(file.read_bytes()[:1000])
    assert main(["inspect", str(run_dir)]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert len(error.splitlines()) == 1
    assert not (run_dir / "report.html").exists()


def test_nothing_to_show(tmp_path, capsys):
    with pytest.raises(UsageError, match="no such folder"):
        read_run(tmp_path / "none")
    with pytest.raises(UsageError, match="log_token_credit"):
        read_run(tmp_path)
    run = runs.write_run(tmp_path, recorded_steps=2)
    assert main(["inspect", str(run), "--step", "3"]) == 2
    assert "--step 3: completions were recorded at 0, 39" in capsys.readouterr().err
