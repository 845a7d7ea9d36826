"""Reading run directories: what is there, what is not, and what is broken."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_trl.cli import main
from delta_trl.files import SETTINGS
from delta_trl.report import read_run, write_report
from delta_trl.report.clouds import FULL, LARGEST, SMALLEST, TokenType, cloud, farthest, frequent_types
from delta_trl.report.figures import LOSERS, WINNERS, Span, axis_range, curves, distributions, relations, run_name
from delta_trl.report.run import Run
from delta_trl.report.token_log.records import COMPLETIONS, FOLDER, TOKEN_TYPES
from delta_trl.report.tokens import token_table

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
        assert c.advantage == pytest.approx(row["advantage"])
        np.testing.assert_allclose(c.coefficients, row["coefficients"], rtol=1e-6)
        nan = [np.nan] * len(row["tokens"])
        np.testing.assert_allclose(c.log_probs, nan if row["log_probs"] is None else row["log_probs"], rtol=1e-6)
        if row["entropies"] and row["entropies"][0] is None:
            assert np.isnan(c.entropies[0])
    assert read[1].reward is None
    assert read[1].rewards == {"a": None, "b": 1.0}


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


def test_figures_show_what_was_recorded(tmp_path):
    """Against pandas-free arithmetic on the rows themselves."""
    run_dir = runs.write_run(tmp_path / "run", recorded_steps=3, length=200)
    run = read_run(run_dir)
    rows = runs.recorded(run_dir)
    winners, losers = ([row for row in rows if row["advantage"] * side > 0] for side in (1, -1))
    table = token_table(run)

    for plot, side in zip(distributions(table), (winners, losers), strict=True):
        traces = plot.figure.data  # lower and upper end of each band, of which the upper one stands in the legend
        assert [trace.name for trace in traces if trace.showlegend is not False] == ["5–95 %", "25–75 %", "median"]
        for trace, quantile in zip(traces, (0.05, 0.95, 0.25, 0.75, 0.5), strict=True):
            for x, y in zip(trace.x, trace.y, strict=True):
                values = [c for row in side if row["step"] == x for c in row["coefficients"]]
                assert y == pytest.approx(np.quantile(values, quantile))

    for plot in distributions(table) + relations(table):  # the coefficient of DAPO
        assert [shape.y0 for shape in plot.figure.layout.shapes] == [1]

    position = relations(table)[0].figure
    for name, side in (("winners", winners), ("losers", losers)):
        trace = next(trace for trace in position.data if trace.name == name)
        counts = np.array(trace.customdata)
        assert counts.sum() == sum(len(row["tokens"]) for row in side)
        mean = np.mean([c for row in side for c in row["coefficients"]])
        assert np.average(trace.y, weights=counts) == pytest.approx(mean)
        assert np.average(trace.x, weights=counts) == pytest.approx(100.5)
        lower, upper = (trace for trace in position.data if trace.name == f"{name}, quartiles")
        assert (np.array(lower.y) < trace.y).all()
        assert (np.array(upper.y) > trace.y).all()

    for plot, column in zip(relations(table)[1:], ("log_probs", "entropies"), strict=True):
        every, won = (np.concatenate([row[column] for row in some]) for some in (rows, winners))
        end = 1.0 if column == "log_probs" else np.quantile(every, 0.995)  # the last bin has what lies beyond
        values = np.minimum(np.exp(won) if column == "log_probs" else won, end)
        counts, ends = np.histogram(values, 24, (0, end))
        trace = next(trace for trace in plot.figure.data if trace.name == "winners")
        assert list(trace.customdata) == [count for count in counts if count >= 10]
        assert len(trace.x) == len(np.unique(np.digitize(trace.x, ends[:-1])))

    by_token = {t.token: t for t in frequent_types(run.token_types, 1)}
    values = [c for row in rows for token, c in zip(row["tokens"], row["coefficients"], strict=True) if token == " x"]
    assert by_token["·x"].count == len(values)
    assert by_token["·x"].mean == pytest.approx(np.mean(values))
    means = [np.mean([c for row in side for c in row["coefficients"]]) for side in (winners, losers)]
    off = [
        c - mean
        for side, mean in zip((winners, losers), means, strict=True)
        for row in side
        for token, c in zip(row["tokens"], row["coefficients"], strict=True)
        if token == " x"
    ]
    assert by_token["·x"].off_side == pytest.approx(np.mean(off))
    assert {t.count >= 50 for t in frequent_types(run.token_types, 50)} == {True}


def test_curves_leave_out_what_was_not_logged(tmp_path):
    runs.write_history(tmp_path / "a", steps=30, credit=False)
    runs.write_history(tmp_path / "b", steps=150)
    one, two = read_run(tmp_path / "a"), read_run(tmp_path / "b")
    assert "Temperatures" not in [plot.title for plot in curves([one])]
    both = {plot.title: plot.figure for plot in curves([one, two])}
    assert [trace.name for trace in both["Temperatures"].data][::2] == ["b, winners", "b, losers"]  # raw and mean
    alone = {plot.title: plot.figure for plot in curves([two])}["Temperatures"]
    assert {trace.line.color for trace in alone.data if trace.name == "winners"} == {WINNERS}
    assert {trace.line.color for trace in alone.data if trace.name == "losers"} == {LOSERS}
    reward = both["Reward"].data[0]
    assert list(reward.y) == [entry["reward"] for entry in one.history]
    raw, mean = both["Reward"].data[1:]
    assert mean.y[70] == pytest.approx(np.mean(raw.y[67:74]))


def test_small_changes_look_small():
    def spanned(values, span):
        low, high = axis_range(np.array(values), span)
        return low, high, high - low

    low, high, width = spanned([45.6, 46.4], Span(10, 0.3, 0))
    assert 0.8 / width < 0.06  # of the height, which noise once filled
    assert (low + high) / 2 == pytest.approx(46)
    assert spanned([100, 900], Span(10, 0.3, 0))[2] == pytest.approx(1.12 * 800)  # what moves is shown whole
    # the least span does not lead past the ends of what is possible
    assert spanned([0.0, 0.002], Span(0.1, 0, 0, 1))[:2] == pytest.approx((-0.006, 0.106))
    assert spanned([0.97, 0.99], Span(0.2, 0, -1, 1))[:2] == pytest.approx((0.788, 1.012))
    assert spanned([0.3, 0.5], Span(1, 0, 0, 1))[:2] == pytest.approx((-0.06, 1.06))
    assert spanned([-2.0, -1.0], Span(5, 0, 0))[0] < -2  # but to all values, whatever was expected
    for values in ([0.0], [1.0, 1.0], [-3.0]):
        assert spanned(values, Span(0, 0))[2] > 0


def test_clouds_show_distances_as_they_are(tmp_path):
    def sizes(means, full=FULL):
        types = [TokenType(f"word{i}", 50, mean, mean, None, 1.0, 0.0) for i, mean in enumerate(means)]
        return [word.size for word in sorted(cloud(types, 1.0, full), key=lambda word: -word.strength)]

    assert sizes([1.1, 1.05, 1.001]) == [LARGEST, (SMALLEST + LARGEST) // 2, SMALLEST]
    close = sizes([1.055, 1.054, 1.048])
    assert close[0] - close[-1] <= 3
    assert max(sizes([1.007, 1.006, 1.001])) <= SMALLEST + 3  # nothing stands out, and nothing is large
    assert len(sizes([1 + 0.1 / (i + 1) for i in range(40)])) == 40
    assert sizes([]) == []
    assert farthest([], 1.0) == 0


def test_names_of_runs(tmp_path):
    def names(*paths):
        pair = [Run(tmp_path / path, [], [], None, False) for path in paths]
        return [run_name(pair, i) for i in range(len(pair))]

    assert names("a/run") == ["run"]
    assert names("a/x", "a/y") == ["x", "y"]
    assert names("a/run", "b/run") == ["a/run", "b/run"]
    assert names("1/a/run", "2/a/run") == ["A run", "B run"]


def write_trl(path, **changes):
    """A file as TRL writes it with `log_completions`."""
    table = {"step": [4, 4], "prompt": ["p", "p"], "completion": ["a", "b"], "good": [1.0, 0.0], "right": [1, None]}
    table |= {"note": ["x", "y"], "mean_token_coefficient": [1.2, 0.8], "trained_advantage": [1.2, -0.8]}
    table |= {"advantage": [1.0, -1.0]} | changes
    (path / "completions").mkdir(parents=True, exist_ok=True)
    file = path / "completions" / "completions_00004.parquet"
    pq.write_table(pa.table(table), file)
    return file


def test_rewards_before_the_first_checkpoint(tmp_path):
    write_trl(tmp_path)
    (group,) = read_run(tmp_path).groups
    assert [c.rewards for c in group.completions] == [{"good": 1.0, "right": 1.0}, {"good": 0.0, "right": None}]
    assert [c.reward for c in group.completions] == [2.0, 0.0]
    history = [{"step": 4, "rewards/good/mean": 0.5}]  # so `right` was something else that is logged
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    assert [c.rewards for c in read_run(tmp_path).groups[0].completions] == [{"good": 1.0}, {"good": 0.0}]


@pytest.mark.parametrize(
    "changes",
    [
        {"step": ["4", "4"]},
        {"step": [None, None]},
        {"advantage": ["high", "low"]},
        {"advantage": [[1.0], [2.0]]},
        {"prompt": [1, 2]},
        {"completion": [["a"], ["b"]]},
    ],
)
def test_wrong_types_in_files_of_trl_are_named(tmp_path, capsys, changes):
    file = write_trl(tmp_path, **changes)
    assert main(["inspect", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert f"{file}: the column {next(iter(changes))!r} has type" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "foreign", "types", "lengths"])
@pytest.mark.parametrize("name", ["token_credit_00000.parquet", "token_types.parquet"])
def test_broken_files_are_named(tmp_path, capsys, damage, name):
    run_dir = runs.write_run(tmp_path / "run", recorded_steps=2)
    file = run_dir / FOLDER / name
    schema = COMPLETIONS if name.startswith("token_credit") else TOKEN_TYPES
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
        first = schema.field(0).with_type(pa.string())
        pq.write_table(pa.Table.from_pylist([], schema=schema.set(0, first)), file)
    elif name == "token_types.parquet":
        pytest.skip("no lists there")
    else:
        pq.write_table(pa.Table.from_pylist([runs.completion(["a", "b"], coefficients=[1.0])], schema), file)
    assert main(["inspect", str(run_dir)]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert "Traceback" not in error
    assert len(error.splitlines()) == 1
    assert not (run_dir / "report.html").exists()


def test_broken_files_of_trl_are_named(tmp_path, capsys):
    (tmp_path / "completions").mkdir()
    file = tmp_path / "completions" / "completions_00004.parquet"
    for write in (lambda: file.write_bytes(b"PAR1 cut"), lambda: pq.write_table(pa.table({"step": [1]}), file)):
        write()
        assert main(["inspect", str(tmp_path)]) == 2
        assert str(file) in capsys.readouterr().err
    state = tmp_path / "trainer_state.json"
    for text in ("{", "[]", '{"log_history": [{"loss": 1}]}'):
        state.write_text(text)
        assert main(["inspect", str(tmp_path)]) == 2
        assert str(state) in capsys.readouterr().err


def test_same_input_same_page(tmp_path):
    run_dir = runs.write_run(tmp_path / "run")
    pages = [write_report([run_dir], tmp_path / name).read_text() for name in ("1.html", "2.html")]
    assert pages[0] != pages[1]  # each has its own number for scripts
    nonces = [page.split("'nonce-")[1].split("'")[0] for page in pages]
    assert pages[0].replace(nonces[0], "") == pages[1].replace(nonces[1], "")
    assert json.dumps(nonces[0]) not in json.dumps(pages[1])


def test_weights_and_sizes_of_groups_are_those_of_the_settings(tmp_path):
    write_trl(tmp_path, prompt=["p"] * 4, step=[4] * 4, completion=list("abcd"), good=[1.0, 0.0, 1.0, 1.0],
              right=[1, None, 0, 0], note=["x"] * 4, mean_token_coefficient=[1.0] * 4, trained_advantage=[1.0] * 4,
              advantage=[1.0] * 4)  # fmt: skip
    settings = {"rewards": {"good": 1.0, "right": 0.1}, "arguments": {"num_generations": 2}}
    (tmp_path / SETTINGS).write_text(json.dumps(settings))
    groups = read_run(tmp_path).groups
    assert [[c.reward for c in group.completions] for group in groups] == [[1.1, 0.0], [1.0, 1.0]]


def test_evaluations_on_named_sets(tmp_path):
    history = [
        {"step": step, "reward": 0.5, "eval_easy_avg_at_k": step / 10, "eval_hard_avg_at_k": step / 20}
        for step in (1, 2)
    ]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    run = read_run(tmp_path)
    assert run.evaluations == {"eval_easy_avg_at_k": "avg@k on easy", "eval_hard_avg_at_k": "avg@k on hard"}
    reward = next(plot.figure for plot in curves([run]) if plot.title == "Reward")
    assert {tuple(trace.y) for trace in reward.data} >= {(0.1, 0.2), (0.05, 0.1)}


def test_evaluations_of_two_runs_have_each_their_own_k(tmp_path):
    runs = []
    for k in (1, 16):
        (tmp_path / str(k)).mkdir()
        history = [{"step": step, "reward": 0.5, "eval_avg_at_k": step / 10} for step in (1, 2)]
        (tmp_path / str(k) / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        (tmp_path / str(k) / SETTINGS).write_text(json.dumps({"arguments": {"num_generations_eval": k}}))
        runs.append(read_run(tmp_path / str(k)))
    label = next(plot.label for plot in curves(runs) if plot.title == "Reward")
    assert "1, evaluation, avg@1 from" in label
    assert "16, evaluation, avg@16 from" in label
