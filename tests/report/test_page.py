"""The page in a real browser, and its HTML: content, values, keyboard, and hostile text."""

import json
import math
import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import jinja2
import numpy as np
import pandas as pd
import pytest

from delta_trl.evaluation.seed_statistics import Paired
from delta_trl.report import read_run, write_report
from delta_trl.report.completions import evenly, token_limit
from delta_trl.report.figures import (
    BINS,
    LEFT,
    RIGHT,
    SERIES,
    WIDTH,
    arms_plot,
    coefficients_plot,
    differences_plot,
    reward_plot,
)
from delta_trl.report.heatmap import describe
from delta_trl.report.reader import Group
from delta_trl.report.templates import render

from . import runs


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory):
    """A run and its report."""
    path = runs.write_run(tmp_path_factory.mktemp("report") / "my run")
    write_report(path, path / "report.html")
    return path


def test_values_by_keyboard_and_by_tap(run_dir, open_page):
    """In a narrow window, which does not scroll sideways."""
    page = open_page(run_dir / "report.html", has_touch=True, viewport={"width": 390, "height": 800})
    groups = read_run(run_dir).groups
    last = next(group for group in groups if group.step == groups[-1].step)  # which the page opens
    coefficients = last.of_side(1)[0].coefficients
    winner = page.locator(".winners .tokens").first
    winner.focus()

    def assert_shown(coefficient):
        page.locator(".tokens > span:focus").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        shown = page.locator(":focus").evaluate("node => getComputedStyle(node, '::after').content")
        assert shown.startswith(f'"coefficient {coefficient:.3f}, probability')

    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert_shown(coefficients[2])
    page.keyboard.press("ArrowLeft")
    assert_shown(coefficients[1])
    winner.locator("span").nth(5).tap()
    assert_shown(coefficients[5])


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_rules(run_dir, open_page, scheme):
    """axe-core: contrast of text on every shade, names, roles, headings, ..."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(run_dir / "report.html", color_scheme=scheme, bypass_csp=True)
    results = axe.Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def report_on(path, **options) -> str:
    """The HTML of the report on a run."""
    return write_report(path, path / "report.html", **options).read_text()


def test_the_page_says_what_ran_and_opens_at_the_last_step(tmp_path):
    runs.write_run(tmp_path)
    record = {
        "model": "my/<model>",
        "token_credit": "DelTA()",
        "date": "2026-01-02",
        "versions": {"torch": "3"},
        "arguments": {"learning_rate": 0.0, "seed": 7, "loss_type": None, "token_credit": "delta"},
    }
    (tmp_path / "training_settings.json").write_text(json.dumps(record))

    html = report_on(tmp_path)

    settings = re.search('<p id="settings">(.*)</p>', html)[1]
    text = unescape(re.sub("<.*?>", "", settings))
    assert text == "model my/<model> · token_credit DelTA() · learning_rate 0.0 · date 2026-01-02"
    groups = re.findall(r'<details class="group"( open)?><summary>.*?(\d+)', html)
    assert groups == [(" open", "39"), ("", "39"), ("", "0"), ("", "0")]
    assert '<p id="settings">model <b>other</b></p>' in report_on(tmp_path, settings={"model": "other"})


HOSTILE = [
    "</script><script>alert(1)</script>",
    "]]></style><img src=x onerror=alert(3)>",
    "{{ 7 * 7 }}{% raw %}",
    "\"'><svg onload=alert(4)>",
    "\u202egnp.exe\u202c",
    "&lt;b&gt;&amp;",
]


def test_hostile_text_is_shown_and_does_nothing(tmp_path, open_page):
    """No dialog, no request, no element that is not ours (the fixture watches), and every text as it is."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, len(HOSTILE), 150)  # often enough for the verdict to name them
    rows = []
    for advantage in (1.0, -1.0):
        coefficients = 1 + 0.2 * (kinds == 0) + rng.normal(0, 0.001, 150)
        row = runs.completion(
            [HOSTILE[kind] for kind in kinds],
            advantage,
            prompt="".join(HOSTILE),
            rewards=[(HOSTILE[0], 1.0), (HOSTILE[4], None)],
            coefficients=coefficients.tolist(),
            log_probs=[-0.1] * 150,
        )
        rows.append(row)
    path = tmp_path / "<img src=x onerror=alert(7)>{{ 7 * 7 }}"
    evaluation = f"eval_{HOSTILE[1]}{HOSTILE[4]}_reward"
    runs.write_history(path, range(3), **{evaluation: [0.5] * 3})
    runs.write_completions(path, rows)

    page = open_page(write_report(path, tmp_path / "report.html"))

    tokens = page.locator("article .tokens").first.locator("span")
    texts = tokens.evaluate_all("all => all.map(node => node.textContent)")
    for token in HOSTILE:
        shown = token.replace("\u202e", "⟨U+202E⟩").replace("\u202c", "⟨U+202C⟩")
        assert shown in texts
    assert page.locator("img, iframe, script[src], svg[onload]").count() == 0
    assert page.evaluate("[...document.scripts].every((script) => script.nonce)")
    assert page.locator("h1").inner_text() == path.name
    assert HOSTILE[0] in page.locator("#verdict").inner_text()
    assert "⟨U+202E⟩" in page.locator(".prompt").inner_text()
    assert "\u202e" not in page.content()


def test_injected_script_would_not_run(run_dir, tmp_path, browser):
    """The second wall: even markup that got past escaping cannot execute or load anything."""
    attack = "<script>window.hit = 1</script><img src='http://127.0.0.1:9/x' onerror='window.hit = 2'>"
    html = (run_dir / "report.html").read_text()
    attacked = tmp_path / "attacked.html"
    attacked.write_text(html.replace("</main>", attack + "</main>"))
    page = browser.new_page()
    page.goto(attacked.as_uri())
    assert page.evaluate("window.hit") is None
    page.close()


def test_only_scripts_with_the_nonce_of_their_page_may_run(run_dir):
    nonces = [re.findall(r"""nonce(?:-|=")([\w-]+)""", report_on(run_dir)) for _ in range(2)]
    (of_policy, of_script), (other, _) = nonces
    assert of_policy == of_script != other


def test_a_value_that_a_template_misses_is_an_error():
    """Else nothing would stand in its place."""
    with pytest.raises(jinja2.UndefinedError, match="'nonce' is undefined"):
        render("page.html.j2", title="a run", groups=[])


# --- the HTML itself ---


def tokens_of(html: str) -> list[tuple[str, str]]:
    """Titles and texts of all tokens."""
    found = re.findall(r'<span class="[^"]*" title="(.*?)">(.*?)</span>', html, re.DOTALL)
    return [(title, unescape(text)) for title, text in found]


def titles(html: str) -> list[str]:
    return re.findall(r'<details class="group"[^>]*><summary>(.*?)</summary>', html)


def facts_of(html: str) -> list[str]:
    """What stands above each completion."""
    return re.findall(r"<article><p>(.*?)</p>", html)


def headings(html: str) -> list[str]:
    """How many completions each side of a group has."""
    return re.findall("<h3>(.*?)</h3>", html)


def test_a_run_without_credit(tmp_path, monkeypatch):
    """As TRL's own trainer leaves it. The run is the folder that one is in."""
    runs.write_history(tmp_path, range(3), reward=[0.5] * 3)
    monkeypatch.chdir(tmp_path)
    html = report_on(Path())
    assert f"<h1>{tmp_path.name}</h1>" in html
    assert "log_token_credit" in html
    assert html.count("<figure>") == 1
    assert "<article>" not in html


def test_a_completion_with_its_numbers(tmp_path):
    coefficients = [1.4, 0.8]
    log_probs = [-0.5, -0.01]
    entropies = [0.7, 0.1]
    dull = runs.completion(["d"], advantage=0.0, prompt_index=1, prompt="dull")
    won = runs.completion(
        ["a", "<b>"],
        reward=0.5,
        rewards=[("same", 0.5), ("same", None)],
        coefficients=coefficients,
        log_probs=log_probs,
        entropies=entropies,
    )
    lost = runs.completion(
        ["c"],
        advantage=-1.0,
        reward=0.0,
        coefficients=[0.9],
        log_probs=None,
        entropies=None,
    )
    empty = runs.completion([], advantage=-1.0, reward=None, rewards=[])
    unscored = runs.completion(["e"], advantage=0.0, coefficients=[None], reward=None)
    runs.write_completions(tmp_path, [dull, won, lost, empty, unscored])

    html = report_on(tmp_path)

    facts = [re.findall(r"<span>(.*?)</span>", one) for one in facts_of(html)]
    assert facts == [
        ["reward 1", "advantage 0.00", "1 tokens", "mean coefficient 1.000"],
        ["reward 0.5", "same 0.5", "same not scored", "advantage 1.00", "2 tokens", "mean coefficient 1.100"],
        ["reward 0", "advantage -1.00", "1 tokens", "mean coefficient 0.900"],
        ["reward not scored", "advantage -1.00", "0 tokens", "not trained"],
        ["reward not scored", "advantage 0.00", "1 tokens", "not trained"],
    ]  # fmt: skip
    assert headings(html) == ["At the mean (1)", "Winners (1)", "Losers (2)", "At the mean (1)"]
    _, of_a, of_b, of_c, of_e = tokens_of(html)
    assert of_a == (describe("coefficient", coefficients[0], log_probs[0], entropies[0]), "a")
    assert of_b == (describe("coefficient", coefficients[1], log_probs[1], entropies[1]), "<b>")
    assert of_c == ("coefficient 0.900", "c")
    assert of_e[0].startswith("coefficient not known, probability")
    without_contrast, with_contrast = titles(html)
    assert without_contrast == "step 0 · equal outcomes · dull"
    assert with_contrast == "step 0 · 1 winners, 2 losers · a prompt"
    assert re.findall(r'<details class="group" open><summary>(.*?)<', html) == [with_contrast]


def test_a_group_with_winners_and_losers_is_open(tmp_path):
    won = [runs.completion(["a"], advantage, prompt="won") for advantage in (1.0, 0.0)]
    both = [runs.completion(["a"], advantage, prompt="both", prompt_index=1) for advantage in (1.0, -1.0)]
    runs.write_completions(tmp_path, [*won, *both])
    opened = re.findall(r'<details class="group" open><summary>(.*?)<', report_on(tmp_path))
    assert opened == ["step 0 · 1 winners, 1 losers · both"]


@pytest.fixture
def many_groups(tmp_path):
    """30 groups at each of two steps, with long prompts."""
    for step in (0, 10):
        rows = []
        for i in range(30):
            row = runs.completion(["a", "b", "c"], step=step, prompt_index=i, prompt="?" * 40_000 + str(i))
            rows.append(row)
        runs.write_completions(tmp_path, rows)
    return tmp_path


def test_of_many_groups_some_are_shown_evenly_and_the_page_stays_small(many_groups):
    """Long prompts show their ends in titles."""
    html = report_on(many_groups)
    assert len(html) < 0.8e6
    assert "30 of 60 recorded groups" in html
    assert "cut after" not in html
    title = re.compile(r"step (\d+) · .* · … \?{77,79}(\d+)")
    shown = [title.fullmatch(one).groups() for one in titles(html)]
    assert shown[:2] == [("10", "0"), ("10", "2")]
    assert shown[-1] == ("0", "28")


@pytest.mark.parametrize("step", [0, 10])
def test_of_one_step_all_groups_are_shown_and_completions_are_cut(many_groups, monkeypatch, step):
    monkeypatch.setattr("delta_trl.report.completions.MAX_TOKENS", 60)
    html = report_on(many_groups, step=step)
    steps = [title.split()[1] for title in titles(html)]
    assert steps == [str(step)] * 30
    assert len(tokens_of(html)) == 60
    assert "cut after 2 tokens" in html
    assert "recorded groups are shown" not in html


def test_equal_completions_stand_there_once(tmp_path):
    """Those whose credit or rewards differ do not."""
    tokens = ["7", "+", "3"]
    rows = [
        runs.completion(tokens, coefficients=[1.0, None, 1.0]),  # a tool's token
        runs.completion(["7", "-", "3"], coefficients=[1.0, None, 1.0]),
        runs.completion(tokens, coefficients=[1.0, None, 1.0]),
        runs.completion(tokens, -1.0, coefficients=[1.0, 1.0, 1.0]),
        runs.completion(tokens, -1.0, coefficients=[1.0, 1.0, 1.1]),
        runs.completion(tokens, -1.0, coefficients=[1.0, 1.0, 1.001]),
        runs.completion(tokens, -1.0, rewards=[("math_reward", 0.5)]),
    ]
    runs.write_completions(tmp_path, rows)
    html = report_on(tmp_path)
    assert headings(html) == ["Winners (3)", "Losers (4)"]
    assert ["2 equal ones" in facts for facts in facts_of(html)] == [True, False, True, False, False]


def groups_of(*lengths: int) -> list[Group]:
    """Groups of 16 completions of so many tokens."""
    groups = []
    for length in lengths:
        completion = SimpleNamespace(tokens=range(length))
        groups.append(Group(0, "", [completion] * 16))
    return groups


# --- plots ---


@pytest.mark.parametrize(
    ("lengths", "every"),
    [
        ([1] * 50, 1),
        ([1] * 51, 2),
        ([1000, 1, 1, 1] * 3, 3),  # every second one would have all long ones
        ([5000], 1),
    ],
    ids=["few", "too many", "long ones in between", "one"],
)
def test_groups_are_chosen_evenly(lengths, every):
    groups = groups_of(*lengths)
    assert evenly(groups) == groups[::every]


def test_long_completions_are_cut():
    assert token_limit(groups_of(2500)) is None
    assert token_limit(groups_of(2501)) == 2500


def drawn(path) -> ET.Element:
    """The first plot of the page of a run."""
    svg = re.search("<svg viewBox=.*?</svg>", report_on(path), re.DOTALL)[0]
    return ET.fromstring(svg)


def labels(plot: ET.Element, anchor: str) -> list[str]:
    return [text.text for text in plot.iterfind(f"text[@text-anchor='{anchor}']")]


def curves(plot: ET.Element) -> np.ndarray:
    """The points (curves, n, 2)."""
    found = []
    for curve in plot.iterfind("g/polyline"):
        points = curve.get("points").split()
        found.append([point.split(",") for point in points])
    return np.array(found, float)


def test_points_are_where_the_numbers_are(tmp_path):
    half = {"eval_hard_reward": 0.5, "eval_reward": 0.5}
    runs.write_history(tmp_path, [10, 20, 40], reward=[0.0, 1.0, 0.5], **half)

    plot = drawn(tmp_path)

    flat_ends = "from 0.5 at 10 to 0.5 at 40"
    ends = f"training from 0 at 10 to 0.5 at 40; evaluation on hard {flat_ends}; evaluation {flat_ends}"
    assert plot.get("aria-label") == f"Reward: {ends}"
    assert labels(plot, "middle") == ["10", "15", "20", "25", "30", "35", "40"]
    assert labels(plot, "end") == ["0", "0.5", "1"]
    curve, flat, _ = curves(plot)
    assert flat[2].tolist() == curve[2].tolist()
    (x_10, x_20, x_40), (y_0, y_1, y_half) = curve.T
    assert x_10 == pytest.approx(LEFT)
    assert x_20 == pytest.approx((2 * x_10 + x_40) / 3, abs=0.2)
    assert x_40 == pytest.approx(WIDTH - RIGHT)
    assert y_1 < y_0  # upwards
    assert y_half == pytest.approx((y_0 + y_1) / 2, abs=0.2)


def test_every_curve_has_a_style_of_the_page_however_many_there_are(tmp_path):
    many = {f"eval_{i}_reward": [0.5] for i in range(SERIES + 1)}
    runs.write_history(tmp_path, [1], **many)
    found = [line.style for line in reward_plot(read_run(tmp_path)).lines]
    assert len(found) > len(set(found)) == SERIES
    html = report_on(tmp_path)
    assert all(f".{style} {{ --color" in html for style in found)


def test_the_curve_of_an_arm_is_the_mean_of_its_seeds(tmp_path):
    seeds = [tmp_path / seed / "none" for seed in ("seed-0", "seed-1")]
    runs.write_history(seeds[0], [4, 8], reward=[0.2, 0.4])
    runs.write_history(seeds[1], [4, 8], reward=[0.4, 0.8])
    runs.write_history(tmp_path / "long", range(1000), reward=[0.0, 1.0] * 500)
    arms = {
        "none": list(map(read_run, seeds)),
        "delta": [read_run(tmp_path / "long")],
    }

    short, long = arms_plot(arms, in_evaluation=False).lines

    points = short.points[["x", "y", "low", "high"]].to_numpy()
    assert points[0] == pytest.approx([4, 0.3, 0.2, 0.4])
    assert points[1] == pytest.approx([8, 0.6, 0.4, 0.8])
    assert len(points) == 2
    assert len(long.points) <= BINS
    assert np.ptp([*long.points.y, 0.5]) < 0.02  # steps are averaged


def test_the_curve_of_an_arm_in_evaluation_is_the_mean_of_its_sets(tmp_path):
    """Of what was evaluated, also before training; not of what else was logged."""
    missing = float("nan")
    logged = {"eval_a_reward": [0.0, missing, 0.4], "eval_b_reward": [0.2, missing, 0.8], "reward": 0.9}
    runs.write_history(tmp_path, [0, 3, 6], **logged, eval_a_reward_std=5.0)
    [line] = arms_plot({"delta": [read_run(tmp_path)]}, in_evaluation=True).lines
    assert line.points[["x", "y"]].to_numpy() == pytest.approx(np.array([[0, 0.1], [6, 0.6]]))


@pytest.mark.parametrize(
    ("pairs", "low", "high"),
    [
        ([Paired("none", [0.2, 0.4], 0.3, 0.5, 0.1), Paired("shuffled", [0.1, 0.1], 0.1, 0.0, math.nan)], -0.2, 0.8),
        ([Paired("none", [0.2, 0.4], 0.3, 0.05, 0.1)], 0, 0.4),
        ([Paired("none", [-0.2, -0.1], -0.15, 0.02, 0.1)], -0.2, 0),
        ([Paired("none", [0.0, 0.0], 0.0, 0.0, math.nan)], -0.00045, 0.00045),
    ],
)
def test_a_figure_of_differences_has_room_for_0_all_seeds_and_intervals(pairs, low, high):
    x_low, x_high = differences_plot("reward", "delta", pairs).across.pixels([low, high])
    assert LEFT < x_low < x_high < WIDTH - RIGHT
    assert x_high - x_low > (WIDTH - RIGHT - LEFT) / 1.2


def test_small_changes_look_small_and_steps_are_whole_numbers(tmp_path):
    runs.write_history(tmp_path, [1, 2], reward=[0.500, 0.504])
    plot = drawn(tmp_path)
    [[first, last]] = curves(plot)
    assert 0 < first[1] - last[1] < 10
    assert labels(plot, "middle") == ["1", "2"]


def test_coefficients_by_side_and_position():
    """
    Winners rise from 1 to 2 over 48 positions, in 24 bins of 2; losers stay, and are shorter. The second of two steps
    is higher by 1, and has three times as many tokens, which does not count.
    """
    position = np.arange(1, 49)
    rise = np.linspace(1, 2, 48)
    first_step = pd.DataFrame({"step": 0, "position": position, "coefficient": rise})
    second_step = first_step.assign(step=1, coefficient=rise + 1)
    winners = pd.concat([first_step] * 5 + [second_step] * 15).assign(side=1)
    losers = winners[winners.position <= 24].assign(side=-1, coefficient=0.9)

    plot = coefficients_plot(pd.concat([winners, losers]))

    won, lost = plot.lines
    assert plot.up.low < 0.9
    assert plot.up.high > won.points.high.max()  # the band's
    in_bins = rise.reshape(24, 2).mean(axis=1)
    np.testing.assert_allclose(won.points.x, position[::2] + 0.5)
    np.testing.assert_allclose(won.points.y, in_bins + 0.5)
    np.testing.assert_allclose(won.points.low, in_bins + 0.25)
    np.testing.assert_allclose(won.points.high, in_bins + 0.75)
    np.testing.assert_allclose(lost.points.x, won.points.x[:12])
    np.testing.assert_allclose(lost.points.y, 0.9)


def test_few_coefficients_have_no_plot():
    position = np.arange(1, 49)
    completion = pd.DataFrame({"step": 0, "position": position, "coefficient": 2.0, "side": 1})
    assert coefficients_plot(pd.concat([completion] * 4)) is None
    plot = coefficients_plot(pd.concat([completion] * 5))
    assert plot.up.low < 1 < 2 < plot.up.high  # the line at 1 is there


def agents_page(tmp_path) -> str:
    """Of a run whose rule gives advantages to turns, with a tool's text between them."""
    rows = []
    for sign in (1.0, -1.0):
        first, second = 0.5 * sign, -0.2 * sign
        row = runs.completion(
            ["search", "!", " found 7", "so", " 7", "."],
            advantage=sign,
            turns=[1, 1, 0, 2, 2, 2],
            coefficients=[1.0, 1.0, None, 1.0, 1.0, 1.0],
            advantages=[first, first, None, second, second, second],
            step_rewards=[None, None, None, sign, None, 0.5],  # two steps in a turn
        )
        rows.append(row)
    runs.write_completions(tmp_path, rows)
    logged = {
        "frac_reward_zero_std": [1.0] * 8,
        "credit/no_advantage": [0.25] * 8,
    }
    runs.write_history(tmp_path, range(8), **logged)
    return report_on(tmp_path)


def test_turns_and_advantages_of_their_own(tmp_path):
    html = agents_page(tmp_path)
    body = html.split('id="completions"')[1]
    assert re.findall(r"<strong>(.*?)</strong>", body) == [
        "turn 1: mean advantage +0.50", "turn 2: reward 1.5, mean advantage -0.20",
        "turn 1: mean advantage -0.50", "turn 2: reward -0.5, mean advantage +0.20",
    ]  # fmt: skip
    assert '<i><span class="" title="advantage not known, ' in body
    shades = re.findall(r'class="(\w+)" title="advantage -', body)
    assert shades == ["b4", "b4", "b4", "b10", "b10"]
    assert "Coefficients by side" not in html
    assert "25% of sampled groups train nothing" in html  # not all of them, though their rewards are equal
