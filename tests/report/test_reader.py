"""Reading run directories: what is there, what is not, and what is broken."""

import json
import math

import numpy as np
import pytest

from delta_trl.arguments.errors import UsageError
from delta_trl.cli import main
from delta_trl.data.records import recorded_files
from delta_trl.report import read_run

from . import runs


def test_recorded_numbers_are_read_as_they_were_written(tmp_path):
    known = runs.completion(
        ["a", "b"],
        advantage=-0.5,
        coefficients=[0.5, 1.5],  # exact in float32
        log_probs=[-0.5, -0.25],
        entropies=[0.5, 0.75],
    )
    unknown = known | {
        "log_probs": None,
        "entropies": None,
        "reward": None,
        "rewards": [("a", None), ("b", 1.0)],
    }
    same_names = known | {
        "entropies": [None, 0.5],
        "rewards": [("same", 0.5), ("same", 1.0)],
        "prompt_index": 1,
    }
    rows = [known, unknown, same_names, runs.completion([], step=20)]
    runs.write_completions(tmp_path, rows)

    run = read_run(tmp_path)

    groups = [(group.step, len(group.completions)) for group in run.groups]
    assert groups == [(0, 2), (0, 1), (20, 1)]
    for row, c in zip(rows, run.completions, strict=True):
        for name in ("step", "reward", "rewards", "advantage"):
            assert getattr(c, name) == row[name]
        assert list(c.tokens) == row["tokens"]
        for name in ("coefficients", "log_probs", "entropies"):
            expected = row[name] or [np.nan] * len(c.tokens)
            np.testing.assert_array_equal(getattr(c, name), np.array(expected, dtype=float))


def test_tokens_of_winners_and_losers(tmp_path):
    """Without those of which no coefficient is known, and by their place among all."""
    won = runs.completion(["a", "b", "c"], coefficients=[None, 0.5, 0.75])
    empty = runs.completion([], advantage=-1.0)
    at_the_mean = runs.completion(["d"], advantage=0.0)
    lost = runs.completion(["e"], advantage=-2.0, log_probs=None, step=3)
    runs.write_completions(tmp_path, [won, empty, at_the_mean, lost])

    tokens = read_run(tmp_path).tokens

    columns = tokens[["step", "side", "text", "coefficient", "position"]]
    assert columns.to_numpy().tolist() == [
        [0, 1, "b", 0.5, 2],
        [0, 1, "c", 0.75, 3],
        [3, -1, "e", 1, 1],
    ]
    assert tokens.completion.nunique() == 2


def test_rewards_in_evaluation_are_named_by_their_sets(tmp_path):
    logged = [
        "eval_reward",
        "eval_hard_set_reward",
        "eval_reward_std",
        "eval_rewards/a/mean",
        "reward",
        "my_eval_reward",
    ]
    runs.write_history(tmp_path, [1], **{key: [0.5] for key in logged})
    assert read_run(tmp_path).evaluations == {"eval_reward": "", "eval_hard_set_reward": "hard_set"}


def test_numbers_are_those_before_dynamic_sampling_chose(tmp_path):
    """Also if 0."""
    chosen = {"reward": 0.5, "frac_reward_zero_std": 0.1, "credit/no_advantage": 0.2}
    before = {"dynamic_sampling/reward_before": 0.0, "dynamic_sampling/no_contrast_before": 0.3}
    runs.write_history(tmp_path / "chosen", [0, 1], **chosen)
    runs.write_history(tmp_path / "sampled", [0, 1], **chosen, **before)
    found = {}
    for folder in ("chosen", "sampled"):
        run = read_run(tmp_path / folder)
        found[folder] = [run.logged(key).tolist() for key in ("reward", "frac_reward_zero_std")]
    assert found == {"chosen": [[0.5, 0.5], [0.2, 0.2]], "sampled": [[0.0, 0.0], [0.3, 0.3]]}


@pytest.mark.parametrize(
    ("coefficients", "advantages", "shaded"),
    [
        ([0.0, 1.5, None], [0.0, -0.75, None], "coefficient"),
        ([1.0, -0.5, 1.0], [-0.5, 0.25, -0.5], "advantage"),  # turned round
        ([1.0, 1.0, 1.0], [-0.5, -0.49, -0.5], "advantage"),
    ],
)
def test_what_tokens_are_shaded_by(tmp_path, coefficients, advantages, shaded):
    """All by advantages, if those of a single completion are no multiples of the response's."""
    usual = runs.completion(["a", "b", "c"])
    other = runs.completion(["a", "b", "c"], -0.5, coefficients=coefficients, advantages=advantages)
    runs.write_completions(tmp_path, [usual, other])
    run = read_run(tmp_path)
    assert run.shaded == shaded
    assert run.tokens.empty == (shaded == "advantage")


def write(path, rewards):
    """A history with losses that are not finite."""
    n = len(rewards)
    steps = range(20, 20 * n + 1, 20)
    runs.write_history(path, steps, reward=rewards, loss=[math.nan] * n)


def test_what_is_not_finite_is_in_no_curve(tmp_path):
    runs.write_history(tmp_path, [1, 2, 3], reward=[math.inf, 0.5, -math.inf])
    assert dict(read_run(tmp_path).logged("reward")) == {2: 0.5}


def rewards_of(path) -> list[float]:
    return read_run(path).logged("reward").tolist()


RISE = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]


def test_the_history_with_the_most_steps_is_read(tmp_path):
    """Whatever the times of its files, as in a copied folder."""
    write(tmp_path / "checkpoint-20", RISE[:1])
    write(tmp_path / "checkpoint-100", RISE[:5])
    write(tmp_path / "checkpoint-40", RISE[:2])
    (tmp_path / "checkpoint-120").mkdir()  # cut off before its state was written
    assert rewards_of(tmp_path) == RISE[:5]

    write(tmp_path, RISE)
    assert rewards_of(tmp_path) == RISE

    state = tmp_path / "trainer_state.json"
    state.write_text(state.read_text()[:50])  # killed in a save
    assert rewards_of(tmp_path) == RISE[:5]


def test_a_branch_that_was_given_up_is_not_shown(tmp_path):
    """A run of 100 steps that goes on from its step 20, and collapses. Times of files say nothing: the last is old."""
    collapse = [0.1, 0.0, 0.0]

    def note(folder, call, goes_on_from=None):
        record = {"call": call, "goes_on_from": goes_on_from}
        (folder / "training_settings.json").write_text(json.dumps(record))

    def save(step, call, rewards):
        checkpoint = tmp_path / f"checkpoint-{step}"
        write(checkpoint, rewards)
        note(checkpoint, call)

    save(40, "2", collapse[:2])
    save(60, "2", collapse)
    save(20, "1", RISE[:1])
    save(100, "1", RISE[:5])
    note(tmp_path, "2", "checkpoint-20")
    assert rewards_of(tmp_path) == collapse
    note(tmp_path, "3", "checkpoint-20")  # which has saved nothing yet
    assert rewards_of(tmp_path) == RISE[:1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: record[:1000],
        lambda record: record[:4] + bytes(1000) + record[1004:],
    ],
    ids=["cut off", "overwritten"],
)
def test_a_broken_record_is_named(tmp_path, capsys, damage):
    run_dir = runs.write_run(tmp_path / "run")
    file = recorded_files(run_dir)[0]
    file.write_bytes(damage(file.read_bytes()))
    assert main(["inspect", str(run_dir)]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert len(error.splitlines()) == 1
    assert not (run_dir / "report.html").exists()


def test_nothing_to_show(tmp_path, capsys):
    with pytest.raises(UsageError, match="no such folder"):
        read_run(tmp_path / "none")
    (tmp_path / "training_settings.json").write_text('{"call": "1"}')
    with pytest.raises(UsageError, match="log_token_credit"):
        read_run(tmp_path)
    run = runs.write_run(tmp_path)
    for folder, steps in ((run, "0, 39"), (runs.write_history(tmp_path / "without", [3], reward=[0.5]), "no step")):
        assert main(["inspect", str(folder), "--step", "3"]) == 2
        assert f"--step 3: completions were recorded at {steps}." in capsys.readouterr().err
