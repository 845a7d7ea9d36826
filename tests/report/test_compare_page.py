"""What the runs of a comparison reached, by hand, and the page that says so."""

import json

import pytest

from delta_trl.arguments.errors import UsageError
from delta_trl.report import read_run
from delta_trl.report.compare_page import OUTCOMES, outcomes_of, write_outcomes

from . import runs


EVALUATION = {"benchmarks": ["few", "many"], "options": {}, "folder": "a"}


def test_outcomes_equal_those_by_hand(tmp_path):
    logged = {
        "reward": [0.1] * 18 + [0.7, 0.9],
        "eval_a_reward": [0.0] * 19 + [0.2],
        "eval_b_reward": [0.0] * 19 + [0.4],
    }
    runs.write_history(tmp_path, range(1, 21), **logged)
    folder = tmp_path / "benchmarks" / EVALUATION["folder"]
    folder.mkdir(parents=True)
    for name, problems, accuracy in (("few", 10, 0.5), ("many", 30, 0.1), ("not in the plan", 10, 1.0)):
        results = {"scored_problems": problems, "avg_at_k": accuracy}
        content = {"settings": {"num_generations": 1}, "results": results}
        (folder / f"{name}.json").write_text(json.dumps(content))

    found = outcomes_of(read_run(tmp_path), OUTCOMES, EVALUATION)

    expected = {
        "accuracy": 0.2,
        "eval_reward": 0.3,
        "training_reward": 0.17,
        "training_reward_at_end": 0.8,
    }
    assert found == pytest.approx(expected)


def test_an_outcome_that_was_not_measured(tmp_path):
    runs.write_history(tmp_path, [1, 2], reward=[0.1, 0.2])
    with pytest.raises(UsageError, match="measured no eval_reward"):
        outcomes_of(read_run(tmp_path), OUTCOMES[1:], EVALUATION)


RULES = ("none", "delta", "side_mean", "shuffled", "fipo", "within_side")


PLAN = {
    "arms": {arm: {} for arm in RULES},
    "rule": "delta",
    "seeds": [0, 1, 2],
    "settings": {
        "model_name_or_path": "my/model",
        "dataset_name": "my/data",
        "learning_rate": 1e-5,
    },
    "evaluation": {**EVALUATION, "benchmarks": []},
    "outcomes": ["eval_reward", "training_reward", "training_reward_at_end"],
    "primary": "eval_reward",
}


@pytest.fixture
def compared(tmp_path):
    """A comparison of six arms with three seeds, which were evaluated before training, too."""
    for seed in PLAN["seeds"]:
        for i, arm in enumerate(RULES):
            at_end = 0.5 + 0.01 * i * seed
            logged = {
                "reward": [0.3, 0.4, 0.5],
                "step_time": [30.0, 30.0, 30.0],
                "eval_reward": [0.25, float("nan"), at_end],
            }
            runs.write_history(tmp_path / f"seed-{seed}" / arm, [0, 2, 4], **logged)
    write_outcomes(tmp_path, PLAN, PLAN["seeds"], {})
    return tmp_path


def test_the_table_begins_before_training(compared):
    text = (compared / "compare.md").read_text()
    assert "model_name_or_path: my/model; dataset_name: my/data; seeds: 0, 1, 2\n" in text
    rows = []
    for line in text.splitlines():
        if line.startswith("|"):
            cells = line.strip("|").split("|")
            rows.append([cell.strip() for cell in cells])
    assert rows[0] == ["arm", "eval_reward", "training_reward", "training_reward_at_end", "minutes"]
    assert rows[2] == ["before training", "0.250", "", "", ""]
    assert rows[3] == ["none", "0.500", "0.400", "0.500", "2.0"]


def test_the_page_of_a_comparison_fits_a_narrow_window_and_links_its_runs(compared, open_page):
    """In a narrow window, no word breaks, nothing scrolls sideways but tables, and all curves look different."""
    page = open_page(compared / "compare.html", viewport={"width": 390, "height": 800})

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    heights = page.locator("th").evaluate_all("all => all.map(node => node.getClientRects()[0].height)")
    assert max(heights) < 60

    plots = page.locator("#plots")
    assert "Reward in evaluation" in plots.inner_text()
    looks = plots.locator("li path").evaluate_all(
        "all => all.map(node => { const style = getComputedStyle(node); return style.stroke + style.strokeDasharray })"
    )
    assert len(set(looks)) == len(RULES)
    assert page.locator("circle.seed").count() == 3 * (len(RULES) - 1)

    links = page.locator("a")
    addresses = links.evaluate_all("all => all.map(node => node.getAttribute('href'))")
    assert addresses == [f"seed-{seed}/{arm}/report.html" for arm in RULES for seed in range(3)]
    links.last.click()
    assert "0.250 at step 0" in page.locator("#verdict").inner_text()
