"""Reading run directories: what is there, what is not, and what is broken."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_trl.arguments.errors import UsageError
from delta_trl.cli import main
from delta_trl.files import SETTINGS
from delta_trl.report import read_run, write_report
from delta_trl.report.token_log.records import COMPLETIONS, FOLDER
from delta_trl.report.tokens import side_means, token_table

from . import runs


def test_recorded_numbers_are_read_as_they_were_written(tmp_path):
    rng = np.random.default_rng(3)
    rows = [row for step in (0, 20) for i in range(2) for row in runs.sampled_group(rng, step, i, size=4, length=9)]
    rows[1] |= {"log_probs": None, "entropies": None, "reward": None, "rewards": [("a", None), ("b", 1.0)]}
    rows[2]["entropies"] = [None, *rows[2]["entropies"][1:]]
    rows[3] |= {name: [] for name in ("token_ids", "tokens", "coefficients", "log_probs", "entropies")}
    runs.write_completions(tmp_path, rows)
    groups = read_run(tmp_path).groups
    assert [(g.step, len(g.completions)) for g in groups] == [(0, 4), (0, 4), (20, 4), (20, 4)]
    read = [c for g in groups for c in g.completions]
    for row, c in zip(rows, read, strict=True):
        assert c.tokens() == row["tokens"]
        assert c.token_ids.tolist() == row["token_ids"]
        assert c.advantage == pytest.approx(row["advantage"])
        np.testing.assert_allclose(c.coefficients, row["coefficients"], rtol=1e-6)
        nan = [np.nan] * len(row["tokens"])
        np.testing.assert_allclose(c.log_probs, nan if row["log_probs"] is None else row["log_probs"], rtol=1e-6)
        if row["entropies"] and row["entropies"][0] is None:
            assert np.isnan(c.entropies[0])
    assert read[1].reward is None
    assert read[1].rewards == {"a": None, "b": 1.0}


def test_tokens_as_arrays(tmp_path):
    rows = [
        runs.completion(["a", "b", "c"], coefficients=[1.0, None, 1.4], token_ids=[7, 8, 9], log_probs=[-0.5] * 3),
        runs.completion(["d"], advantage=0.0),  # trains nothing
        runs.completion(["e", "f"], advantage=-1.0, coefficients=[0.5, 0.7], step=4),
    ]
    runs.write_completions(tmp_path, rows)
    run = read_run(tmp_path)
    assert side_means(run) == pytest.approx({(0, 1): 1.2, (4, -1): 0.6})
    table = token_table(run)
    assert table.rows.tolist() == [0, 0, 0, 1, 1]
    assert table.steps.tolist() == [0, 0, 0, 4, 4]
    assert table.sides.tolist() == [1, 1, 1, -1, -1]
    assert table.ids.tolist() == [7, 8, 9, 0, 1]
    assert table.positions.tolist() == [1, 2, 3, 1, 2]
    np.testing.assert_allclose(table.within, [-0.2, np.nan, 0.2, -0.1, 0.1], atol=1e-6)
    assert table.late.tolist() == [False, False, True, False, True]
    np.testing.assert_allclose(table.probabilities, np.exp([-0.5] * 5), rtol=1e-6)


def test_the_newest_history(tmp_path):
    def write(path, steps, time):
        runs.write_history(path, steps=steps, every=20)
        os.utime(path / "trainer_state.json", (time, time))

    for step in (20, 100, 40):
        write(tmp_path / f"checkpoint-{step}", step, time=1000 + step)
    (tmp_path / "checkpoint-120").mkdir()  # cut off before its state was written
    assert read_run(tmp_path).history[-1]["step"] == 100
    write(tmp_path, 60, time=1100)  # copied, so that all have the same time
    assert read_run(tmp_path).history[-1]["step"] == 60
    write(tmp_path / "checkpoint-20", 20, time=1200)  # a second run in the same folder
    assert read_run(tmp_path).history[-1]["step"] == 20
    state = tmp_path / "checkpoint-20" / "trainer_state.json"
    state.write_text(state.read_text()[:50])  # killed in a save
    assert read_run(tmp_path).history[-1]["step"] == 60
    whole = json.loads((tmp_path / "trainer_state.json").read_text())
    state.write_text(json.dumps(whole | {"log_history": whole["log_history"][:2]}))  # copied after its successor
    assert read_run(tmp_path).history[-1]["step"] == 60


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "foreign", "types", "lengths"])
def test_broken_records_are_named(tmp_path, capsys, damage):
    run_dir = runs.write_run(tmp_path / "run", recorded_steps=2)
    file = run_dir / FOLDER / "token_credit_00000.parquet"
    whole = file.read_bytes()
    if damage == "truncated":
        file.write_bytes(whole[: len(whole) // 2])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "text":
        file.write_text("not Parquet\n" * 100)
    elif damage == "foreign":
        pq.write_table(pa.table({"a": [1]}), file)
    elif damage == "types":
        first = COMPLETIONS.field(0).with_type(pa.string())
        pq.write_table(pa.Table.from_pylist([], schema=COMPLETIONS.set(0, first)), file)
    else:
        pq.write_table(pa.Table.from_pylist([runs.completion(["a", "b"], coefficients=[1.0])], COMPLETIONS), file)
    assert main(["inspect", str(run_dir)]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert len(error.splitlines()) == 1
    assert not (run_dir / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("trainer_state.json", text) for text in ("{", "[]", '{"log_history": [{"loss": 1}]}')),
        *((SETTINGS, text) for text in ("{", "[]", "\udcff")),
    ],
)
def test_broken_json_is_named(tmp_path, name, text):
    run_dir = runs.write_run(tmp_path / "run", recorded_steps=1)
    (run_dir / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=name):
        write_report(run_dir, run_dir / "report.html")


def test_nothing_to_show(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        read_run(tmp_path / "none")
    with pytest.raises(UsageError, match="log_token_credit"):
        read_run(tmp_path)


def test_a_trained_run_is_read(trained_run, tmp_path):
    run = read_run(trained_run)
    assert [entry["step"] for entry in run.history if "reward" in entry] == [1, 2, 3, 4]
    assert sorted({group.step for group in run.groups}) == [0, 1, 2, 3]
    assert run.settings["arguments"]["max_steps"] == 4
    for group in run.groups:
        for c in group.completions:
            assert len(c.tokens()) == len(c.token_ids) == len(c.coefficients) > 0
    html = write_report(trained_run, tmp_path / "report.html").read_text()
    assert html.count("<article>") == sum(len(group.completions) for group in run.groups)
    assert 'id="coefficients"' in html
