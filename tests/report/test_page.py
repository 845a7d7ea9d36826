"""The page in a real browser, and its HTML: content, values, keyboard, and hostile text."""

import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from delta_trl.report import read_run, write_report
from delta_trl.report.completions import evenly, token_limit
from delta_trl.report.figures import BINS, LEFT, RIGHT, WIDTH, arms_plot, coefficients_plot
from delta_trl.report.heatmap import describe
from delta_trl.report.reader import Group

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
    page.locator(".winners .tokens").first.focus()
    groups = read_run(run_dir).groups
    last = next(group for group in groups if group.step == groups[-1].step)  # which the page opens
    winner = last.of_side(1)[0]

    def shown() -> str:
        page.locator(".tokens > span:focus").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        return page.locator(":focus").evaluate("node => getComputedStyle(node, '::after').content")

    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert shown().startswith(f'"coefficient {winner.coefficients[2]:.3f}, probability')
    page.keyboard.press("ArrowLeft")
    assert shown().startswith(f'"coefficient {winner.coefficients[1]:.3f}, probability')
    page.locator(".winners .tokens").first.locator("span").nth(5).tap()
    assert shown().startswith(f'"coefficient {winner.coefficients[5]:.3f}, probability')


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_rules(run_dir, open_page, scheme):
    """axe-core: contrast of text on every shade, names, roles, headings, ..."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    results = axe.Axe().run(open_page(run_dir / "report.html", color_scheme=scheme, bypass_csp=True))
    assert results.violations_count == 0, results.generate_report()


def test_the_page_says_what_ran_and_opens_at_the_last_step(tmp_path):
    runs.write_run(tmp_path)
    settings = {"model": "my/<model>", "token_credit": "DelTA()", "date": "2026-01-02", "versions": {"torch": "3"}}
    record = json.dumps({**settings, "arguments": {"learning_rate": 1e-05, "seed": 7}})
    (tmp_path / "training_settings.json").write_text(record)
    html = write_report(tmp_path, tmp_path / "report.html").read_text()
    head = re.sub("<.*?>", "", re.search('<p id="settings">(.*)</p>', html)[1])
    assert unescape(head) == "model my/<model> · token_credit DelTA() · learning_rate 1e-05 · date 2026-01-02"
    steps = re.findall(r'<details class="group"( open)?><summary>.*?(\d+)', html)
    assert [bool(is_open) for is_open, _ in steps] == [True, False, False, False]
    assert steps[0][1] == "39"


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
    rows = [
        runs.completion(
            [HOSTILE[kind] for kind in kinds],
            prompt="".join(HOSTILE),
            reward=float(won),
            advantage=1.0 if won else -1.0,
            rewards=[(HOSTILE[0], 1.0), (HOSTILE[4], None)],
            coefficients=(1 + 0.2 * (kinds == 0) + rng.normal(0, 0.001, 150)).tolist(),
            log_probs=[-0.1] * 150,
        )
        for won in (True, False)
    ]
    path = tmp_path / "<img src=x onerror=alert(7)>{{ 7 * 7 }}"
    runs.write_history(path, range(3), **{f"eval_{HOSTILE[1]}{HOSTILE[4]}_reward": [0.5] * 3})
    runs.write_completions(path, rows)
    page = open_page(write_report(path, tmp_path / "report.html"))
    tokens = page.locator("article .tokens").first.locator("span")
    texts = tokens.evaluate_all("all => all.map(node => node.textContent)")
    for token in HOSTILE:
        assert token.replace("\u202e", "⟨U+202E⟩").replace("\u202c", "⟨U+202C⟩") in texts
    assert page.locator("img, iframe, script[src], svg[onload]").count() == 0
    assert page.evaluate("[...document.scripts].every((script) => script.nonce)")
    assert page.locator("h1").inner_text() == path.name
    assert HOSTILE[0] in page.locator("#verdict").inner_text()
    assert "⟨U+202E⟩" in page.locator(".prompt").inner_text()
    assert "\u202e" not in page.content()


def test_injected_script_would_not_run(run_dir, tmp_path, browser):
    """The second wall: even markup that got past escaping cannot execute or load anything."""
    attack = "<script>window.hit = 1</script><img src='http://127.0.0.1:9/x' onerror='window.hit = 2'>"
    html = (run_dir / "report.html").read_text().replace("</main>", attack + "</main>")
    (tmp_path / "attacked.html").write_text(html)
    page = browser.new_page()
    page.goto((tmp_path / "attacked.html").as_uri())
    assert page.evaluate("window.hit") is None
    page.close()


# --- the HTML itself ---


def tokens_of(page) -> list[tuple[str, str]]:
    """Titles and texts of all tokens."""
    found = re.findall(r'<span class="[^"]*" title="(.*?)">(.*?)</span>', page.read_text(), re.DOTALL)
    return [(title, unescape(text)) for title, text in found]


def titles(html: str) -> list[str]:
    return re.findall(r'<details class="group"[^>]*><summary>(.*?)</summary>', html)


def test_a_run_without_credit(tmp_path):
    """As TRL's own trainer leaves it."""
    runs.write_history(tmp_path, range(3), reward=[0.5] * 3)
    html = write_report(tmp_path, tmp_path / "report.html").read_text()
    assert "log_token_credit" in html
    assert html.count("<figure>") == 1
    assert "<article>" not in html


def test_a_completion_with_its_numbers(tmp_path):
    won = {"coefficients": [1.4, 0.8], "log_probs": [-0.5, -0.01], "entropies": [0.7, 0.1]}
    rows = [
        runs.completion(["d"], advantage=0.0, prompt_index=1, prompt="dull"),
        runs.completion(["a", "<b>"], **won, rewards=[("same", 0.5), ("same", None)], reward=0.5),
        runs.completion(["c"], advantage=-1.0, reward=0.0, coefficients=[0.9], log_probs=None, entropies=None),
        runs.completion([], advantage=-1.0, reward=None, rewards=[]),
        runs.completion(["e"], advantage=0.0, coefficients=[None], reward=None),
    ]
    runs.write_completions(tmp_path, rows)
    page = write_report(tmp_path, tmp_path / "report.html")
    html = page.read_text()
    facts = re.findall(r"<article><p>(.*?)</p>", html)
    assert [re.findall(r"<span>(.*?)</span>", text) for text in facts] == [
        ["reward 1", "advantage 0.00", "1 tokens", "mean coefficient 1.000"],
        ["reward 0.5", "same 0.5", "same not scored", "advantage 1.00", "2 tokens", "mean coefficient 1.100"],
        ["reward 0", "advantage -1.00", "1 tokens", "mean coefficient 0.900"],
        ["reward not scored", "advantage -1.00", "0 tokens", "not trained"],
        ["reward not scored", "advantage 0.00", "1 tokens", "not trained"],
    ]  # fmt: skip
    assert re.findall("<h3>(.*?)</h3>", html) == ["At the mean (1)", "Winners (1)", "Losers (2)", "At the mean (1)"]
    values = [describe("coefficient", *numbers) for numbers in zip(*won.values(), strict=True)]
    assert tokens_of(page)[1:3] == [(values[0], "a"), (values[1], "<b>")]
    assert tokens_of(page)[3][0] == "coefficient 0.900"
    assert tokens_of(page)[4][0].startswith("coefficient not known, probability")
    assert titles(html) == ["step 0 · equal outcomes · dull", "step 0 · 1 winners, 2 losers · a prompt"]
    assert re.findall(r'<details class="group" open><summary>(.*?)<', html) == titles(html)[1:]  # one with a contrast


def test_a_page_of_many_groups_shows_some_and_stays_small(tmp_path, monkeypatch):
    """Of many groups it shows some, evenly, or those of a step. Long prompts show their ends in titles."""
    row = runs.completion(["a", "b", "c"])
    for step in (0, 10):
        places = [{"step": step, "prompt_index": i, "prompt": "?" * 40_000 + str(i)} for i in range(30)]
        runs.write_completions(tmp_path, [row | place for place in places])
    html = write_report(tmp_path, tmp_path / "report.html").read_text()
    assert len(html) < 0.8e6
    assert "30 of 60 recorded groups" in html
    assert "cut after" not in html
    found = [re.fullmatch(r"step (\d+) · .* · … \?{77,79}(\d+)", title).groups() for title in titles(html)]
    assert found[:2] == [("10", "0"), ("10", "2")]
    assert found[-1] == ("0", "28")
    monkeypatch.setattr("delta_trl.report.completions.MAX_TOKENS", 60)
    page = write_report(tmp_path, tmp_path / "report.html", step=10)
    assert [title.split()[1] for title in titles(page.read_text())] == ["10"] * 30  # all of them
    assert len(tokens_of(page)) == 60
    assert "cut after 2 tokens" in page.read_text()
    assert "recorded groups are shown" not in page.read_text()


def test_equal_completions_stand_there_once(tmp_path):
    """Those whose credit differs do not."""
    tokens = ["7", "+", "3"]
    winners = [runs.completion(tokens), runs.completion(["10"]), runs.completion(tokens)]
    losers = [runs.completion(tokens, -1.0, coefficients=[1.0, 1.0, x]) for x in (1.0, 1.1, 1.001)]
    runs.write_completions(tmp_path, winners + losers)
    html = write_report(tmp_path, tmp_path / "report.html").read_text()
    assert re.findall("<h3>(.*?)</h3>", html) == ["Winners (3)", "Losers (3)"]
    facts = re.findall(r"<article><p>(.*?)</p>", html)
    assert ["2 equal ones" in one for one in facts] == [True, False, True, False]


def groups_of(*lengths: int) -> list[Group]:
    """Groups of 16 completions of so many tokens."""
    return [Group(0, "", [SimpleNamespace(tokens=range(length))] * 16) for length in lengths]


def test_groups_are_chosen_evenly_and_long_completions_are_cut():
    for lengths, every in (
        ([1] * 50, 1),
        ([1] * 51, 2),
        ([1000, 1, 1, 1] * 3, 3),  # every second one would have all long ones
        ([5000], 1),
    ):
        groups = groups_of(*lengths)
        assert evenly(groups) == groups[::every]
    assert token_limit(groups_of(2500)) is None
    assert token_limit(groups_of(2501)) == 2500


# --- plots ---


def drawn(path) -> ET.Element:
    """The first plot of the page of a run."""
    html = write_report(path, path / "report.html").read_text()
    return ET.fromstring(re.search("<svg viewBox=.*?</svg>", html, re.DOTALL)[0])


def labels(plot: ET.Element, anchor: str) -> list[str]:
    return [text.text for text in plot.iterfind(f"text[@text-anchor='{anchor}']")]


def curves(plot: ET.Element) -> np.ndarray:
    """The points (curves, n, 2)."""
    points = [curve.get("points").split() for curve in plot.iterfind("g/polyline")]
    return np.array([[point.split(",") for point in curve] for curve in points], float)


def test_points_are_where_the_numbers_are(tmp_path):
    runs.write_history(tmp_path, [10, 20, 40], reward=[0.0, 1.0, 0.5], eval_hard_reward=[0.5, 0.5, 0.5])
    plot = drawn(tmp_path)
    curve, flat = curves(plot)
    assert curve[[0, 2], 0].tolist() == pytest.approx([LEFT, WIDTH - RIGHT])  # from end to end
    assert (curve[1, 0] - curve[0, 0]) * 2 == pytest.approx(curve[2, 0] - curve[1, 0], abs=0.2)
    assert curve[2, 1] == pytest.approx(curve[:2, 1].mean(), abs=0.2)
    assert curve[1, 1] < curve[0, 1]  # upwards
    assert flat[2].tolist() == curve[2].tolist()
    ends = "training from 0 at 10 to 0.5 at 40; evaluation on hard from 0.5 at 10 to 0.5 at 40"
    assert plot.get("aria-label") == f"Reward: {ends}"
    assert labels(plot, "middle") == ["10", "15", "20", "25", "30", "35", "40"]
    assert labels(plot, "end") == ["0", "0.5", "1"]


def test_the_curve_of_an_arm_is_the_mean_of_its_seeds(tmp_path):
    runs.write_history(tmp_path / "0", [4, 8], reward=[0.2, 0.4])
    runs.write_history(tmp_path / "1", [4, 8], reward=[0.4, 0.8])
    runs.write_history(tmp_path / "long", range(1000), reward=[0.0, 1.0] * 500)
    arms = {"none": [read_run(tmp_path / "0"), read_run(tmp_path / "1")], "delta": [read_run(tmp_path / "long")]}
    short, long = arms_plot(arms, in_evaluation=False).lines
    assert short.points[["x", "y", "low", "high"]].to_numpy().ravel() == pytest.approx(
        [4, 0.3, 0.2, 0.4, 8, 0.6, 0.4, 0.8]
    )
    assert len(long.points) <= BINS
    assert np.ptp([*long.points.y, 0.5]) < 0.02  # steps are averaged


def test_small_changes_look_small_and_steps_are_whole_numbers(tmp_path):
    runs.write_history(tmp_path, [1, 2], reward=[0.500, 0.504])
    plot = drawn(tmp_path)
    [[first, last]] = curves(plot)
    assert 0 < first[1] - last[1] < 10
    assert labels(plot, "middle") == ["1", "2"]


def test_coefficients_by_side_and_position():
    """
    Winners rise from 1 to 2 over 48 positions, in 24 bins of 2; losers stay. The second of two steps is higher by 1,
    and has three times as many tokens, which does not count.
    """
    position = np.arange(1, 49)
    steps = []
    for step, completions in enumerate((5, 15)):
        own = {"step": step, "position": np.tile(position, completions)}
        own["coefficient"] = 1 + step + (own["position"] - 1) / 47
        steps.append(pd.DataFrame(own))
    winners = pd.concat(steps).assign(side=1)
    losers = winners.assign(side=-1, coefficient=0.9)
    won, lost = coefficients_plot(pd.concat([winners, losers])).lines
    first_step = (1 + (position - 1) / 47).reshape(24, 2).mean(axis=1)
    expected = np.column_stack([position[::2] + 0.5, first_step + 0.5, first_step + 0.25, first_step + 0.75])
    np.testing.assert_allclose(won.points[["x", "y", "low", "high"]], expected)
    np.testing.assert_allclose(lost.points.y, 0.9)
    assert coefficients_plot(winners[: 4 * 48]) is None


def agents_page(tmp_path):
    """A run whose rule gives advantages to turns, with a tool's text between them."""
    tokens = ["search", "!", " found 7", "so", " 7", "."]
    rows = [
        runs.completion(
            tokens,
            advantage=float(sign),
            turns=[1, 1, 0, 2, 2, 2],
            coefficients=[1.0, 1.0, None, 1.0, 1.0, 1.0],
            advantages=[sign * x if x is not None else None for x in (0.5, 0.5, None, -0.2, -0.2, -0.2)],
            step_rewards=[None, None, None, sign, None, 0.5],  # two steps in a turn
        )
        for sign in (1, -1)
    ]
    runs.write_completions(tmp_path, rows)
    runs.write_history(tmp_path, range(8), **{"frac_reward_zero_std": [1.0] * 8, "credit/no_advantage": [0.25] * 8})
    return write_report(tmp_path, tmp_path / "report.html")


def test_turns_and_advantages_of_their_own(tmp_path):
    html = agents_page(tmp_path).read_text()
    body = html.split('id="completions"')[1]
    assert re.findall(r"<strong>(.*?)</strong>", body) == [
        "turn 1: mean advantage +0.50", "turn 2: reward 1.5, mean advantage -0.20",
        "turn 1: mean advantage -0.50", "turn 2: reward -0.5, mean advantage +0.20",
    ]  # fmt: skip
    assert '<i><span class="" title="advantage not known, ' in body
    assert re.findall(r'class="(\w+)" title="advantage -', body) == ["b4"] * 3 + ["b10"] * 2
    assert "Coefficients by side" not in html
    assert "25% of sampled groups train nothing" in html  # not all of them, though their rewards are equal
