"""The study `weights`: best weights, the formula and its page, from rows whose best weights are known."""

import json
import math

import numpy as np
import pytest

from scripts.studies import weights
from scripts.studies.plans import WEIGHTS, WEIGHTS_OF
from scripts.studies.runs import Run
from scripts.studies.study import Runner, task_of


(SECTION,) = WEIGHTS.sections
RATE = 2.5e-4
RATES = dict(zip(WEIGHTS.tasks, (0.05, 0.29, 0.6, 0.1, 0.25, 0.55, 0.27, 0.32), strict=True))


def expected(task: str, noise: float = 0.0) -> float:
    """Logarithm of the best weight that the rows have."""
    p = RATES[task]
    return -0.5 - 0.3 * math.log(p / (1 - p)) + 0.2 * (task in weights.KINDS) + noise


def row_of(run: Run, **fields) -> dict:
    return dict(zip(("phase", "task", "variant", "learning_rate", "seed"), run.key, strict=True)) | fields


def rows(noise=lambda task, fresh: 0.0) -> list[dict]:
    """Of all tuning runs, and of three seeds of all cells: accuracy falls with the distance from the best weight."""
    bases = [WEIGHTS.tuned_as(SECTION, cell) for cell in SECTION.cells]
    made = [row_of(run, reward=[1 - abs(run.learning_rate - RATE)]) for run in WEIGHTS.tuning(bases)]
    for task, variant in SECTION.cells:
        name = variant.removesuffix("_fresh")
        x = math.log(WEIGHTS_OF[name]) / math.log(5)
        top = expected(task, noise(task, variant != name))
        for seed in range(3):
            accuracy = 0.7 - 0.05 * (x - top) ** 2 + 0.01 * seed
            ends = {"accuracy_before": RATES[task], "accuracy_after": accuracy, "length": [40.0], "seconds": 1.0}
            made.append(row_of(Run("study", task, variant, RATE, WEIGHTS.first_seed + seed), **ends))
    return made


def test_best_weights_and_formula_are_those_of_the_rows():
    places = weights.spots(WEIGHTS, rows())
    assert [(spot.task, spot.fresh) for spot in places] == [(t, f) for t in WEIGHTS.tasks for f in (False, True)]
    for spot in places:
        assert spot.top == pytest.approx(min(max(expected(spot.task), -2), 1))
        assert spot.interval == pytest.approx((spot.top, spot.top))
    formula = weights.fit(places)
    assert formula == pytest.approx([-0.5, -0.3, 0.2])
    found = weights.judge(places, formula)
    assert found["spots"] == 12
    assert found["formula"] == pytest.approx(0, abs=1e-9)
    assert found["predicts"]


def test_a_formula_that_does_not_hold_elsewhere():
    """Elsewhere the best weight is that of the four spots on average, whatever the pass rate."""
    mean = np.mean([expected(task) for task in weights.FITTED])
    off = lambda task, fresh: 0.0 if task in weights.FITTED and not fresh else mean - expected(task)  # noqa: E731
    places = weights.spots(WEIGHTS, rows(off))
    assert not weights.judge(places, weights.fit(places))["predicts"]


def test_a_weight_that_has_no_top_is_the_best_that_was_tried():
    means = np.array([[0.1, 0.2, 0.4, 0.8], [0.9, 0.5, 0.4, 0.35], [0.5, 0.7, 0.7, 0.5]])
    assert weights.best(means) == pytest.approx([1, -2, -0.5])


def test_staleness_moves_the_best_weight():
    places = weights.spots(WEIGHTS, rows(lambda task, fresh: 0.25 * fresh))
    assert weights.staleness(places)["difference"] == pytest.approx(0.25)


@pytest.mark.processes
def test_the_page(tmp_path):
    weights.write_report(WEIGHTS, rows(), tmp_path / "weights")
    page = (tmp_path / "weights.md").read_text()
    assert "log₅ w = -0.50 -0.30 logit p +0.20" in page
    assert "**It predicts them better than a constant.**" in page
    assert (tmp_path / "weights_map.png").stat().st_size > 10_000
    numbers = json.loads((tmp_path / "weights.json").read_text(), parse_constant=pytest.fail)
    assert len(numbers["spots"]) == 16
    assert all(low <= of["best"] <= high for of in numbers["spots"] for low, high in [of["interval"]])
    with pytest.raises(SystemExit, match="nothing to report"):
        weights.write_report(WEIGHTS, rows()[:100], tmp_path / "weights")


def test_one_step_takes_the_whole_rollout_batch():
    runner = Runner(WEIGHTS)
    stale, fresh = (Run("study", "arithmetic", name, RATE, 8000) for name in ("losers_0.2", "losers_0.2_fresh"))
    configs = [runner.config(run, task_of(run)) for run in (stale, fresh)]
    assert [config.generation_batch_size for config in configs] == [128, 128]
    assert [config.per_device_train_batch_size for config in configs] == [32, 128]
    assert [config.max_steps for config in configs] == [64, 16]
    assert WEIGHTS.tuned_as(SECTION, ("arithmetic", "losers_5_fresh")) == ("arithmetic", "dapo_fresh")
