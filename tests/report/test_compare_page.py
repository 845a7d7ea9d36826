"""What the runs of a comparison reached, by hand, and the page that says so."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from delta_trl.arguments.errors import UsageError
from delta_trl.evaluation.seed_statistics import t_test
from delta_trl.report import read_run
from delta_trl.report.compare_page import OUTCOMES, outcomes_of, write_outcomes

from . import runs


EVALUATION = {"benchmarks": ["few", "many"], "options": {}, "folder": "a"}


def write_results(run, name, problems, accuracy):
    """Those of a benchmark, with so many problems that are scored."""
    results = {"problems": 50, "scored_problems": problems, "avg_at_k": accuracy}
    content = {"settings": {"num_generations": 1}, "results": results}
    folder = run / "benchmarks" / EVALUATION["folder"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_outcomes_equal_those_by_hand(tmp_path):
    logged = {
        "reward": [0.1] * 19 + [0.7, 0.9],  # of which a tenth are three
        "eval_a_reward": [0.9] * 20 + [0.2],
        "eval_b_reward": [0.0] * 20 + [0.4],
    }
    runs.write_history(tmp_path, range(1, 22), **logged)
    write_results(tmp_path, "few", 10, 0.8)
    write_results(tmp_path, "many", 30, 0.0)
    write_results(tmp_path, "not in the plan", 10, 1.0)

    found = outcomes_of(read_run(tmp_path), OUTCOMES, EVALUATION)

    expected = {
        "accuracy": 0.2,
        "eval_reward": 0.3,
        "training_reward": 3.5 / 21,
        "training_reward_at_end": 1.7 / 3,
    }
    assert found == pytest.approx(expected)


def test_an_outcome_that_was_not_measured(tmp_path):
    runs.write_history(tmp_path, [1, 2], reward=[0.1, 0.2])
    write_results(tmp_path, "few", 0, None)
    with pytest.raises(UsageError, match="measured no accuracy, eval_reward"):
        outcomes_of(read_run(tmp_path), OUTCOMES, EVALUATION)


RULES = ("none", "delta", "side_mean", "shuffled", "fipo", "within_side")
GAINS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.01)  # from seed to seed


PLAN = {
    "arms": {arm: {} for arm in RULES},
    "rule": "delta",
    "seeds": [0, 1, 2],
    "settings": {
        "model_name_or_path": "my/model",
        "dataset_name": "my/data",
        "learning_rate": 1e-5,
    },
    "evaluation": EVALUATION,
    "outcomes": ["eval_reward", "training_reward", "training_reward_at_end"],
    "primary": "eval_reward",
}


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|"):
            cells = line.strip("|").split("|")
            rows.append([cell.strip() for cell in cells])
    return rows


def train(folder):
    """The runs of a comparison of six arms with three seeds, which were evaluated before training, too."""
    for seed in PLAN["seeds"]:
        for arm, gain in zip(RULES, GAINS, strict=True):
            at_end = 0.5 + gain * seed
            logged = {
                "reward": [0.3, 0.4, 0.5],
                "step_time": [30.0 + 30 * seed] * 3,
                "eval_reward": [0.25, float("nan"), at_end],
            }
            runs.write_history(folder / f"seed-{seed}" / arm, [0, 2, 4], **logged)
    return folder


@pytest.fixture
def trained(tmp_path):
    return train(tmp_path)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = train(tmp_path_factory.mktemp("compared"))
    write_outcomes(folder, PLAN, PLAN["seeds"], {})
    return folder


def test_the_table_begins_before_training(compared):
    text = (compared / "compare.md").read_text()
    assert "model_name_or_path: my/model; dataset_name: my/data; benchmarks: few, many; seeds: 0, 1, 2\n" in text
    rows = rows_of(text)
    assert rows[0] == ["arm", "eval_reward", "training_reward", "training_reward_at_end", "minutes"]
    assert rows[2] == ["before training", "0.250", "", "", ""]
    assert rows[3] == ["none", "0.500", "0.400", "0.500", "4.0"]


def test_what_was_not_evaluated_before_training_has_no_row(trained, monkeypatch):
    """In a folder that one is in."""
    monkeypatch.chdir(trained)
    for path in trained.glob("seed-*/*/trainer_state.json"):
        state = json.loads(path.read_text())
        del state["log_history"][0]["eval_reward"]
        path.write_text(json.dumps(state))
    changes = {"arms": TWO, "seeds": [0], "evaluation": {**EVALUATION, "benchmarks": []}}
    text = write_outcomes(Path(), PLAN | changes, [0], {})
    assert f"<h1>{trained.name}</h1>" in Path("compare.html").read_text()
    assert [row[0] for row in rows_of(text)[2:]] == ["none", "delta"]
    assert "dataset_name: my/data; seeds: 0\n" in text


def test_differences_are_those_of_the_rule(compared):
    """Of `shuffled`, which was 0, 0.02 and 0.04 better; its p of 0.23 is corrected for the four arms that differ."""
    text = (compared / "compare.md").read_text()
    rows = {row[0]: row[1:] for row in rows_of(text)}
    mean, half, _ = t_test([0.0, -0.02, -0.04])
    assert rows["delta - shuffled"] == [f"{mean:+.3f}", f"{mean - half:+.3f} to {mean + half:+.3f}", "0.902"]
    assert rows["delta - within_side"] == ["+0.000", "+0.000 to +0.000", "the same for every seed: no test"]
    assert rows["eval_reward"] == ["difference", "95 % interval, uncorrected", "p, corrected"]

    content = json.loads((compared / "compare.json").read_text())
    assert content["before"] == {"eval_reward": 0.25}
    assert content["means"]["shuffled"]["eval_reward"] == pytest.approx(0.53)
    assert content["reached"]["shuffled"]["eval_reward"] == pytest.approx([0.5, 0.53, 0.56])
    by_arm = {one["arm"]: one for one in content["differences"]}
    assert by_arm["shuffled"]["by_seed"] == pytest.approx([0.0, -0.02, -0.04])
    assert by_arm["shuffled"]["p"] == pytest.approx(0.902, abs=5e-4)
    assert by_arm["within_side"]["p"] is None


def test_differences_lie_where_their_numbers_are(compared):
    """On one scale: dots, intervals and the tick of 0."""
    found = json.loads((compared / "compare.json").read_text())["differences"]
    figure = (compared / "compare.html").read_text().split("<h2>Differences</h2>")[1]
    [zero] = re.findall(r'<text x="([\d.]+)"[^>]*>0</text>', figure)
    values, places = [0.0], [zero]
    values += [value for one in found for value in one["by_seed"]]
    places += re.findall(r'class="seed" cx="([\d.]+)"', figure)
    for one in found:
        values += [one["mean"] - one["half"], one["mean"] + one["half"], one["mean"]]
    bars = r'class="interval" points="([\d.]+),\d+ ([\d.]+),\d+"/>.*?class="mean" points="([\d.]+),'
    for ends_and_mean in re.findall(bars, figure, re.DOTALL):
        places += ends_and_mean
    places = np.array(places, float)
    scale, at_0 = np.polyfit(values, places, 1)
    assert scale > 0
    assert places == pytest.approx(scale * np.array(values) + at_0, abs=0.2)


TWO = {"none": {}, "delta": {}}
LEFT_OUT = "Seed {} is left out: none failed 3 times."


@pytest.mark.parametrize(
    ("seeds", "left_out", "says"),
    [
        ([0, 2], [], "1 of 3 seeds are not finished. The test waits for them."),
        ([2], [0], "1 of 3 seeds are not finished. The test waits for them."),
        ([2], [0, 1], "One seed cannot tell a difference from chance."),
        ([0, 2], [1], "Judged by eval_reward: No clear difference between delta and "),
    ],
)
def test_a_comparison_is_judged_when_all_seeds_are_finished_or_left_out(trained, seeds, left_out, says):
    reasons = {seed: LEFT_OUT.format(seed) for seed in left_out}
    text = write_outcomes(trained, {**PLAN, "arms": TWO}, seeds, reasons)
    content = json.loads((trained / "compare.json").read_text())
    assert says in text
    assert f"seeds: {', '.join(map(str, seeds))}\n" in text
    assert content["says"].startswith(says)
    assert content["seeds"] == seeds
    assert content["left_out"] == {str(seed): reason for seed, reason in reasons.items()}
    assert ("delta - none" in text) == bool(content["differences"]) == says.startswith("Judged")
    html = (trained / "compare.html").read_text()
    assert re.findall(r'href="seed-(\d)/delta/report.html">seed (\d)<', html) == [(str(i), str(i)) for i in seeds]
    for reason in reasons.values():
        assert reason in text
        assert reason in html


def test_the_curves_are_of_what_is_judged(trained, compared):
    write_outcomes(trained, PLAN | {"arms": TWO, "seeds": [0], "primary": "training_reward"}, [0], {})
    for folder, shown in ((compared, "evaluation"), (trained, "training")):
        html = (folder / "compare.html").read_text()
        assert set(re.findall(r"Reward in (\w+)", html)) == {shown}


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
