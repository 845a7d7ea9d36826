"""The page in a real browser: content, values, keyboard, themes, and hostile text."""

import io
import json
import re
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from delta_trl.cli import main
from delta_trl.report import read_run, write_report
from delta_trl.report.heatmap import MAX_OPACITY, SHADES, describe, shade, spread
from delta_trl.report.token_log.records import COMPLETIONS, FOLDER
from delta_trl.report.tokens import token_table
from delta_trl.report.verdict import HOW, verdict

from . import runs


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory):
    """A run and its report."""
    path = runs.write_run(tmp_path_factory.mktemp("report") / "my run", recorded_steps=4)
    assert main(["inspect", str(path)]) == 0
    return path


def pixels_near(image: Image.Image, colour: tuple[int, int, int], tolerance: int = 24) -> int:
    return int((np.abs(np.asarray(image.convert("RGB"), int) - colour).max(axis=2) <= tolerance).sum())


def screenshot(locator) -> Image.Image:
    return Image.open(io.BytesIO(locator.screenshot()))


def test_content_is_really_there(run_dir, open_page):
    page = open_page(run_dir / "report.html")
    assert page.title() == "my run · token credit report"
    assert page.locator("#verdict figcaption h3").all_inner_texts() == ["Reward"]
    titles = page.locator("#curves figcaption h4").all_inner_texts()
    for title in ("Completion length", "Entropy", "Temperatures", "Centroid cosine", "Clip ratios"):
        assert title in titles
    for canvas in page.locator(".canvas").all():
        paths = canvas.locator(".scatterlayer .js-line").evaluate_all(
            "all => all.map(p => p.getAttribute('d').length)"
        )
        assert paths
        assert min(paths) > 20, canvas.get_attribute("aria-label")
    assert pixels_near(screenshot(page.locator(".canvas").first), (47, 127, 193)) > 100  # the curve's blue

    rows = runs.recorded(run_dir)
    group = [row for row in rows if row["step"] == 0 and row["prompt_index"] == 0]
    assert page.locator(".prompt").inner_text().endswith(group[0]["prompt"])
    assert page.locator(".winners h3").inner_text() == "Winners (3)"
    assert page.locator(".losers h3").inner_text() == "Losers (5)"
    left, right = page.locator(".winners").bounding_box(), page.locator(".losers").bounding_box()
    assert left["x"] + left["width"] <= right["x"]
    assert left["y"] == right["y"]
    texts = page.locator("article .tokens").evaluate_all("all => all.map(node => node.textContent)")
    expected = sorted(group, key=lambda row: row["advantage"] < 0)
    assert texts == ["".join(row["tokens"]).replace("\n", "⏎\n") for row in expected]

    shown = np.asarray(screenshot(page.locator("#view")).convert("RGB"), int)
    redness = shown[..., 0] - shown[..., 2]
    for shaded in (redness < -40, redness > 40):  # blue and orange
        assert shaded.sum() > 1000
    words = page.locator(".cloud.high text title").all_text_contents()
    assert any("scaffold" in word for word in words)
    assert page.locator(".cloud.low text").count() > 3


def test_the_verdict_says_what_the_numbers_do(run_dir, open_page):
    page = open_page(run_dir / "report.html")
    run = read_run(run_dir)
    expected = verdict(run, token_table(run), 20)
    shown = page.locator("#verdict .verdict li").all_inner_texts()
    assert len(shown) == len(expected) >= 5
    for sentence, text in zip(expected, shown, strict=True):
        assert sentence.text in text
        assert text.startswith("Warning") == sentence.warning
    assert page.locator("#verdict li.warning").count() == sum(sentence.warning for sentence in expected) > 0
    page.get_by_text("How this is judged").click()
    assert HOW in page.locator(".how").inner_text()

    link = page.locator("#verdict li", has_text="lies between the sides").locator("a")
    plot = page.locator(link.get_attribute("href"))
    link.click()
    assert "Variance between the sides" in plot.inner_text()
    page.wait_for_function(  # scrolling is smooth
        "node => { const box = node.getBoundingClientRect(); return box.top >= 0 && box.top < innerHeight }",
        arg=plot.element_handle(),
    )


def levels(node) -> tuple[str, str]:
    """The two shades of a token: by its coefficient, and relative to its side."""
    coefficient, relative = node.get_attribute("class").split(" ")
    return coefficient, relative.removeprefix("r")


def opacity(node) -> float:
    """Of a token's background as the browser draws it."""
    colour = node.evaluate("node => getComputedStyle(node).backgroundColor")
    assert colour.startswith("rgba(")
    return float(colour.rstrip(")").split(",")[3])


def test_shades_and_values_are_those_recorded(run_dir, open_page):
    page = open_page(run_dir / "report.html")
    rows = runs.recorded(run_dir)
    sides = {
        (step, side): np.mean(
            [c for r in rows if r["step"] == step and r["advantage"] * side > 0 for c in r["coefficients"]]
        )
        for step in {row["step"] for row in rows}
        for side in (1, -1)
    }
    full = spread([c - 1 for row in rows for c in row["coefficients"]])
    distances = [c - sides[row["step"], int(np.sign(row["advantage"]))] for row in rows for c in row["coefficients"]]
    full_relative = spread(distances)
    row = next(row for row in rows if row["advantage"] < 0)
    mean = sides[row["step"], -1]
    tokens = page.locator(".losers article .tokens").first.locator("span").all()
    for token, c, log_prob, entropy in zip(
        tokens, row["coefficients"], row["log_probs"], row["entropies"], strict=True
    ):
        assert levels(token) == (shade(c, full), shade(c, full_relative, mean))
        assert token.get_attribute("title") == describe(c, log_prob, entropy)
    facts = page.locator(".losers article p").first.inner_text()
    assert f"mean coefficient {np.mean(row['coefficients']):.3f}" in facts
    assert f"mean of its side {mean:.3f}" in facts

    token = max(tokens, key=lambda token: int(levels(token)[0][1:] or 0))
    for i, label in enumerate(("coefficient", "relative to its side’s mean")):
        page.get_by_label(label, exact=True).check()
        level = int(levels(token)[i][1:] or 0)
        assert opacity(token) == pytest.approx(MAX_OPACITY * level / SHADES, abs=0.005)
        assert page.locator(".tokens.legend:visible").count() == 1
    assert page.locator(".tokens.legend:visible").inner_text().startswith(f"less −{full_relative:.2f}")


def test_few_responses_leave_no_blank(tmp_path, open_page):
    """One winner of eight: it takes a third, and stays in view beside the losers."""
    words = ["some", " words", "\n"] * 60
    rows = [runs.completion(words, reward=float(i == 0), advantage=2.6 if i == 0 else -0.4) for i in range(8)]
    runs.write_completions(tmp_path, rows)
    page = open_page(write_report([tmp_path], tmp_path / "report.html"), viewport={"width": 1300, "height": 800})
    won, lost = page.locator(".winners").bounding_box(), page.locator(".losers").bounding_box()
    assert lost["width"] == pytest.approx(2 * won["width"], rel=0.05)
    lefts = page.locator(".losers article").evaluate_all("all => all.map((one) => one.getBoundingClientRect().left)")
    assert len(set(lefts)) == 2
    page.locator(".losers article").last.scroll_into_view_if_needed()
    box = page.locator(".winners").bounding_box()
    assert box["y"] + box["height"] > 0


def test_everything_is_reachable_by_keyboard(run_dir, open_page):
    page = open_page(run_dir / "report.html")
    reached = []
    while not page.evaluate("document.activeElement.matches('.tokens > span')"):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        assert len(reached) < 40
        if reached[-1] == "group":
            page.keyboard.press("ArrowDown")
            page.locator(".prompt", has_text="Problem 1 of step 0").wait_for()
    assert reached.index("group") == len(reached) - 4  # then how to shade, the prompt, and the first token
    row = next(row for row in runs.recorded(run_dir) if row["advantage"] > 0 and row["prompt_index"] == 1)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    focus = page.locator(":focus")
    assert focus.text_content() == row["tokens"][2].replace("\n", "⏎\n")
    values = focus.evaluate("node => getComputedStyle(node, '::after').content")
    assert values.startswith(f'"coefficient {row["coefficients"][2]:.3f}, probability')
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Tab")  # one stop for each completion
    assert page.locator(":focus").evaluate("node => node.previousSibling") is None


def test_values_of_a_curve_on_hover(run_dir, open_page):
    page = open_page(run_dir / "report.html")
    page.locator(".canvas").first.hover()
    label = page.locator(".canvas").first.locator(".hoverlayer")
    label.locator("text").first.wait_for()
    step, reward = label.locator("text").all_text_contents()
    history = json.loads((run_dir / "trainer_state.json").read_text())["log_history"]
    assert 15 <= int(step.removeprefix("step ")) <= 25  # in the middle of 40
    assert float(reward) == pytest.approx(history[int(step.removeprefix("step ")) - 1]["reward"], rel=1e-3)


def test_token_table_sorts(run_dir, open_page):
    page = open_page(run_dir / "report.html")
    column = page.locator("#clouds tbody td:nth-child(6)")
    page.get_by_role("button", name="times sampled").press("Enter")
    counts = [int(text.replace(",", "")) for text in column.all_inner_texts()]
    assert counts == sorted(counts, reverse=True)
    page.get_by_role("button", name="times sampled").click()
    assert column.first.inner_text() == str(min(counts))
    assert page.locator("th[aria-sort=ascending]").inner_text() == "times sampled"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_rules(run_dir, open_page, scheme):
    """axe-core: contrast of text on every shade, names, roles, headings, …"""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(run_dir / "report.html", color_scheme=scheme, bypass_csp=True)
    page.locator(".how summary").click()
    results = axe.Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def test_theme_follows_the_reader(run_dir, open_page):
    page = open_page(run_dir / "report.html", color_scheme="dark")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(20, 23, 27)"
    ink = "getComputedStyle(document.querySelector('.canvas .xtick text')).fill"
    dark = page.evaluate(ink)
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"dark => {ink} !== dark", arg=dark)


@pytest.mark.parametrize("width", [360, 420])
def test_narrow_windows_do_not_scroll_sideways(run_dir, open_page, width):
    page = open_page(run_dir / "report.html", viewport={"width": width, "height": 700})
    page.locator(".how summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    letters = page.locator(".cloud text").evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")
    assert min(letters) > 9
    left, right = page.locator(".winners").bounding_box(), page.locator(".losers").bounding_box()
    assert left["y"] + left["height"] <= right["y"]


def test_without_javascript_the_page_says_so(run_dir, open_page):
    page = open_page(run_dir / "report.html", ready=False, java_script_enabled=False)
    assert "needs JavaScript" in page.locator("noscript").inner_text()
    assert "0.3" in page.locator("dl").inner_text()
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_run_of_trls_own_trainer(make_trainer, tmp_path, open_page):
    """Curves and completions without shades, and how to get them."""
    from trl import GRPOConfig, GRPOTrainer

    trainer = make_trainer(trainer_class=GRPOTrainer, config_class=GRPOConfig, log_completions=True)
    trainer.train()
    trainer.save_state()
    page = open_page(write_report([tmp_path / "run"], tmp_path / "report.html"))
    assert "log_token_credit" in page.locator(".run .notice").inner_text()
    assert "Reward" in page.locator("figcaption h3").all_inner_texts()
    assert "2 values of the reward" in page.locator("#verdict").inner_text()
    assert page.locator("#coefficients, #clouds, .tokens.legend").count() == 0
    files = sorted((tmp_path / "run" / "completions").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert page.locator("#group option").count() == len({(row["step"], row["prompt"]) for row in rows})
    group = [
        row
        for row in rows
        if row["prompt"] == page.locator(".prompt").evaluate("node => node.firstChild.lastChild.data")
    ]
    shown = page.locator("article .tokens").all_inner_texts()
    assert {row["completion"].rstrip() for row in group} >= {text.rstrip() for text in shown}


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "]]></style><img src=x onerror=alert(3)>",
    "{{ 7 * 7 }}{% raw %}",
    "\"'><svg onload=alert(4)>",
    "\u2028alert(5)\u2029",
    "\u202egnp.exe\u202c",
    "\u200f\u2067x",
    "\x00\x1b[31m\x07",
    "a" * 100_000,
    "\u0301" * 50,
    "שלום",
    "&lt;b&gt;&amp;",
    "\ufffd",
    "<a href=javascript:alert(6)>x</a>",
]


def test_hostile_text_is_shown_and_does_nothing(tmp_path, open_page):
    """No dialog, no request, no element that is not ours (the fixture watches), and every text as it is."""
    rows = [
        runs.completion(
            HOSTILE * 25,  # often enough for the clouds
            prompt="".join(HOSTILE),
            reward=float(won),
            advantage=1.0 if won else -1.0,
            rewards=[(HOSTILE[0], 1.0), (HOSTILE[7], None)],
            coefficients=[1.2 if i % 2 else 0.8 for i in range(len(HOSTILE) * 25)],
        )
        for won in (True, False)
    ]
    path = tmp_path / "<img src=x onerror=alert(7)>{{ 7 * 7 }}"
    runs.write_history(path, steps=3)
    runs.write_completions(path, rows)
    runs.write_token_types(path, rows)
    page = open_page(write_report([path], tmp_path / "report.html"))
    tokens = page.locator("article .tokens").first.locator("span")
    texts = tokens.evaluate_all("all => all.map(node => node.textContent)")
    for token in HOSTILE:
        if token.isprintable() and len(token) <= 64:
            assert token in texts
    assert "⟨U+202E⟩gnp.exe⟨U+202C⟩" in texts
    assert "␀␛[31m␇" in texts
    assert "a" * 63 + "… (100,000 characters)" in texts
    assert page.locator("img, iframe, script[src], svg[onload], main a:not([href^='#'])").count() == 0
    ours = "[...document.scripts].every((script) => script.nonce || script.type === 'application/gzip')"
    assert page.evaluate(ours)
    assert page.locator("h1").inner_text() == path.name
    assert page.locator("tbody th", has_text="<script>alert(1)</script>").count() >= 1
    assert "⟨U+202E⟩" in page.locator(".prompt").inner_text()


def test_injected_script_would_not_run(run_dir, tmp_path, browser):
    """The second wall: even markup that got past escaping cannot execute or load anything."""
    attack = "<script>window.hit = 1</script><img src='http://127.0.0.1:9/x' onerror='window.hit = 2'>"
    html = (run_dir / "report.html").read_text().replace("</main>", attack + "</main>")
    (tmp_path / "attacked.html").write_text(html)
    page = browser.new_page()
    page.goto((tmp_path / "attacked.html").as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate("window.hit") is None
    page.close()


def test_text_that_is_not_utf8(tmp_path, open_page):
    """Parquet promises UTF-8 and does not check."""
    broken = b"caf\xe9 \xff\xfe \xed\xa0\x80"
    table = pa.Table.from_pylist([runs.completion(["x", "y"])], COMPLETIONS).to_pydict()
    text = pa.array([broken]).view(pa.string())
    tokens = pa.ListArray.from_arrays([0, 2], pa.array([broken, b"y"]).view(pa.string()))
    changed = {"prompt": text, "completion": text, "tokens": tokens}
    arrays = [changed.get(field.name, pa.array(table[field.name], field.type)) for field in COMPLETIONS]
    (tmp_path / FOLDER).mkdir()
    pq.write_table(pa.Table.from_arrays(arrays, schema=COMPLETIONS), tmp_path / FOLDER / "token_credit_00001.parquet")
    page = open_page(write_report([tmp_path], tmp_path / "report.html"))
    assert page.locator("article .tokens span").first.text_content().startswith("caf\ufffd \ufffd\ufffd")
    assert "caf\ufffd" in page.locator(".prompt").inner_text()


def test_unknown_values_and_odd_groups(tmp_path, open_page):
    rows = [
        runs.completion(["a", "b"], log_probs=None, entropies=None, coefficients=[None, 1.1]),
        runs.completion([], advantage=-1.0, reward=None, rewards=None),
        runs.completion(["c"], advantage=0.0, reward=float("nan")),
        runs.completion(["d"], advantage=0.0, prompt_index=1, prompt="dull"),
    ]
    runs.write_completions(tmp_path, rows)
    page = open_page(write_report([tmp_path], tmp_path / "report.html"))
    headings = page.locator(".side h3").all_inner_texts()
    assert headings == ["Winners (1)", "Losers (1)", "At the mean"]
    assert "reward not scored" in page.locator(".losers article").inner_text()
    titles = page.locator(".winners .tokens span").evaluate_all("all => all.map((one) => one.title)")
    assert titles == ["coefficient not known", "coefficient 1.100"]
    page.locator("#group").select_option(index=1)
    page.locator(".side h3", has_text="No contrast").wait_for()


@pytest.mark.slow
def test_a_normal_run_is_small_and_fast(tmp_path, open_page):
    """500 steps, 200 completions of 800 tokens, a large vocabulary and numbers that hardly compress."""
    syllables = "ta ri on pre fac sum x ing ver de al mo 12 = : po ly".split()
    vocabulary = [" " + a + b + c for a in syllables for b in syllables for c in syllables]
    sizes = {"recorded_steps": 25, "groups": 1, "size": 8, "length": 800}
    run_dir = runs.write_run(tmp_path / "run", steps=500, **sizes, vocabulary=vocabulary)
    cpu, wall = time.process_time(), time.perf_counter()
    output = write_report([run_dir], tmp_path / "report.html")
    assert time.process_time() - cpu < 20
    assert time.perf_counter() - wall < 20
    assert output.stat().st_size < 5_000_000
    page = open_page(output)
    assert page.locator("#group option").count() == 25
    assert page.locator("article .tokens span").count() == 8 * 800


def test_larger_recordings_are_thinned_out_evenly(tmp_path, monkeypatch):
    monkeypatch.setattr("delta_trl.report.page.MAX_SIZE", 24_000)
    run_dir = runs.write_run(tmp_path / "run", recorded_steps=20, groups=1, length=30)  # 20 groups, 2,900 each

    def steps(html):
        return [int(step) for step in re.findall(r"<option [^>]*>step (\d+)", html)]

    recorded = [row["step"] for row in runs.recorded(run_dir)[::8]]
    html = write_report([run_dir], tmp_path / "report.html").read_text()
    assert steps(html) == recorded[::3]
    assert "7 of 20 recorded groups" in html
    assert steps(write_report([run_dir], tmp_path / "step.html", step=2).read_text()) == [2]


def test_prompts_with_the_same_examples_are_told_apart(tmp_path, open_page):
    examples = "".join(f"{i} + {i} = ?\nThat is {2 * i}.\n" for i in range(20))
    rows = [runs.completion(["a"], prompt_index=i, prompt=f"{examples}{i} + 30 = ?") for i in range(2)]
    runs.write_completions(tmp_path, rows)
    page = open_page(write_report([tmp_path], tmp_path / "report.html"))
    assert page.locator("#group option").all_inner_texts() == [
        f"step 0 · 1 winners, 0 losers · … {i} + 30 = ?" for i in (0, 1)
    ]
    box = page.locator(".prompt").bounding_box()
    question = page.evaluate(
        """() => {
            const text = document.querySelector(".prompt div").lastChild, range = document.createRange();
            range.setStart(text, text.length - 1);
            range.setEnd(text, text.length);
            return range.getBoundingClientRect().bottom;
        }"""
    )
    assert box["y"] < question <= box["y"] + box["height"]  # in sight without scrolling
    assert page.locator(".prompt").evaluate("box => box.scrollHeight > box.clientHeight")


@pytest.mark.processes
def test_long_prompts_are_thinned_out_too(tmp_path):
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789+-=() "))
    prompts = ["".join(letters[rng.integers(len(letters), size=10_000)]) for _ in range(1000)]
    runs.write_completions(tmp_path, [runs.completion(["a"], prompt_index=i, prompt=p) for i, p in enumerate(prompts)])
    output = write_report([tmp_path], tmp_path / "report.html")
    assert output.stat().st_size < 5_000_000
    html = write_report([tmp_path], output, step=0).read_text()
    assert "of 1,000 recorded groups" in html
    assert "--step" not in re.search(r'<p class="note">[^<]*recorded groups[^<]*', html)[0]


def test_one_group_that_is_too_large_is_cut(tmp_path, monkeypatch, open_page):
    def write(length):
        rows = runs.sampled_group(np.random.default_rng(0), 0, 0, size=16, length=length)
        runs.write_completions(tmp_path, rows)
        output = write_report([tmp_path], tmp_path / "report.html")
        return rows, output, int(re.search(r"cut after ([\d,]+) tokens", output.read_text())[1].replace(",", ""))

    _, output, limit = write(30_000)
    assert output.stat().st_size < 5_000_000
    assert 9_000 < limit < 12_000

    monkeypatch.setattr("delta_trl.report.page.MAX_SIZE", 10_000)
    rows, output, limit = write(300)
    page = open_page(output)
    assert page.locator(".winners article").count() == sum(row["advantage"] > 0 for row in rows)
    assert page.locator("article").count() == 16
    first = page.locator("article").first
    assert "300 tokens" in first.inner_text()
    assert first.locator(".tokens span").count() == limit


@pytest.mark.slow  # what the README's picture is made with
def test_picture(run_dir, tmp_path, browser):
    command = [sys.executable, "-m", "scripts.build.report_picture", run_dir, tmp_path / "report.png"]
    subprocess.run([*map(str, command)], check=True)
    picture = Image.open(tmp_path / "report.png").convert("RGB")
    assert picture.size == (1240, 1620)
    assert (tmp_path / "report.png").stat().st_size < 300_000
    assert pixels_near(picture, (47, 127, 193)) > 500
