"""The study `elicit`: rates that are tuned, what is concluded, and its page, from rows with known gains."""

import json

import pytest

from scripts.studies import elicit
from scripts.studies.plans import ELICIT, ELICIT_FAMILIES
from scripts.studies.runs import Run, tuning_runs


(SECTION,) = ELICIT.sections
RATE = 1e-4


def row_of(run: Run, **fields) -> dict:
    return dict(zip(("phase", "task", "variant", "learning_rate", "seed"), run.key, strict=True)) | fields


def tuning_rows(best: float = RATE) -> list[dict]:
    """All at the planned rates; the reward falls with the distance from the best."""
    runs = ELICIT.tuning([ELICIT.tuned_as(SECTION, cell) for cell in SECTION.cells])
    return [row_of(run, reward=[1 - abs(run.learning_rate - best)]) for run in runs]


def solved(share: float) -> list[int]:
    """Of 256 problems with 64 samples each, how many are solved once; the others never."""
    once = round(share * 256)
    return [256 - once, once, *[0] * 63]


def rows(gains: dict[tuple[str, str], float], pass_at_64: dict[tuple[str, str], float]) -> list[dict]:
    """
    Rows of all cells on four seeds. `gains`, by arm and start model, are those of accuracy over DAPO, which has 0.3;
    the seeds vary around them. Pass@64 is 0.5 and its gain.
    """
    made = []
    for task, arm in SECTION.cells:
        family, start = task.split("_")
        for seed in range(4):
            spread = 0.004 * (seed - 1.5) * (arm != "dapo") * (1 + ELICIT_FAMILIES.index(family))
            accuracy = 0.3 + gains.get((arm, start), 0.0) + spread
            run = Run("long", task, arm, RATE, ELICIT.first_seed + seed)
            curve = {"reward": [0.2, accuracy], "grad_norm": [0.5], "entropy": [0.3]}
            looks = [{"accuracy": 0.1}, *({"accuracy": accuracy} for _ in range(3))]
            ends = {"accuracy_before": 0.2, "accuracy_after": accuracy, "looks": looks}
            ends |= {"solved_after": solved(0.5 + pass_at_64.get((arm, start), 0.0)), "seconds": 1.0, "commit": "abc"}
            made.append(row_of(run, **curve, **ends))
    return made


NOTHING: dict = {}
LOSERS_GAIN = {("losers_0.2", "narrow"): 0.05, ("losers_0.2", "broad"): 0.05}


@pytest.mark.parametrize(
    ("gains", "pass_at_64", "advice", "interaction"),
    [
        (LOSERS_GAIN, NOTHING, "in general", "not clear"),
        (LOSERS_GAIN, {("losers_0.2", "broad"): -0.1}, "no general advice", "not clear"),
        ({("losers_0.2", "narrow"): 0.05, ("losers_0.2", "broad"): -0.05}, NOTHING, "no general advice", "less"),
        ({("losers_0.2", "broad"): 0.05}, NOTHING, "in general", "more"),
        (LOSERS_GAIN, {("losers_5", "broad"): 0.1}, "when teaching only", "not clear"),
        (NOTHING, NOTHING, "no general advice", "not clear"),
    ],
)
def test_what_is_concluded(gains, pass_at_64, advice, interaction):
    every = [*tuning_rows(), *rows(gains, pass_at_64)]
    runs = elicit.complete_runs(ELICIT, every)
    found = elicit.conclude(*(elicit.compare(runs, name) for name in ("accuracy", "pass@64")))
    assert (found["advice"], found["interaction"]) == (advice, interaction)


def test_the_page(tmp_path):
    elicit.write_report(ELICIT, [*tuning_rows(), *rows(LOSERS_GAIN, NOTHING)], tmp_path / "elicit")
    page = (tmp_path / "elicit.md").read_text()
    assert "**in general**" in page
    assert "Seeds: 4 of 8. Commits of the rows: abc." in page
    numbers = json.loads((tmp_path / "elicit.json").read_text(), parse_constant=pytest.fail)
    for start in ("narrow", "broad"):
        gain = numbers["accuracy"][f"losers_0.2 − dapo, {start}"]["walks"]
        assert gain["difference"] == pytest.approx(LOSERS_GAIN["losers_0.2", start])


def test_only_seeds_that_every_cell_has(tmp_path):
    every = [*tuning_rows(), *rows(NOTHING, NOTHING)]
    runs = elicit.complete_runs(ELICIT, every[:-1])
    assert {len(of) for starts in runs.values() for arms in starts.values() for of in arms.values()} == {3}
    with pytest.raises(SystemExit, match="nothing to report"):
        elicit.write_report(ELICIT, tuning_rows(), tmp_path / "elicit")


def test_the_grid_is_widened_where_the_best_rate_is_at_its_edge():
    base = ("walks_broad", "dapo")
    assert ELICIT.wider_tuning([base], tuning_rows()) == []
    at_edge = tuning_rows(best=1e-6)
    following = ELICIT.wider_tuning([base], at_edge)
    assert {(run.learning_rate, run.seed) for run in following} == {(1.6e-5, 7100), (1.6e-5, 7101)}
    assert base not in ELICIT.learning_rates(SECTION, [base], at_edge)
    wider = [row_of(run, reward=[2.0]) for run in tuning_runs([base], lambda _: (1.6e-5,), lambda _: (7100, 7101))]
    assert {run.learning_rate for run in ELICIT.wider_tuning([base], at_edge + wider)} == {6e-6}
    least = [row_of(run, reward=[0.0]) for run in tuning_runs([base], lambda _: (6e-6,), lambda _: (7100, 7101))]
    assert ELICIT.learning_rates(SECTION, [base], at_edge + wider + least) == {base: 1.6e-5}


def test_rows_of_two_start_models_are_not_compared():
    made = [row | {"start_model": "one"} for row in rows(NOTHING, NOTHING)]
    assert elicit.complete_runs(ELICIT, [*tuning_rows(), *made])
    made[0]["start_model"] = "another"
    with pytest.raises(ValueError, match="programs_narrow began at different start models"):
        elicit.complete_runs(ELICIT, [*tuning_rows(), *made])
