"""The page of an audit in Chromium: its content, narrow windows, accessibility, and hostile text."""

import json
from pathlib import Path

import pytest

from delta_trl.audit.page import verdict, write_page
from delta_trl.audit.summary import summarise
from delta_trl.cli import main

from .test_page import HOSTILE


MODEL = Path(__file__).parents[2] / "scripts" / "studies" / "models" / "arithmetic"
STUDY = "scripts.studies.audit_benchmarks.study_arithmetic"


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    call = ["--model_name_or_path", MODEL, "--benchmarks", STUDY, "--output_dir", folder]
    call += [
        "--use_cpu",
        "true",
        "--num_prompts",
        12,
        "--prompts_per_batch",
        6,
        "--num_generations",
        4,
        "--reference_batches",
        2,
    ]
    assert main(["audit", *map(str, call)]) == 0
    return folder


def test_content_is_really_there(audited, open_page):
    page = open_page(audited / "audit.html")
    results = json.loads((audited / "results.json").read_text())
    (one,) = results["benchmarks"].values()
    rows = page.locator("table").first.locator("tbody tr")
    assert rows.count() == len(results["settings"]["rules"])
    assert rows.nth(0).locator("td").first.inner_text() == f"{one['rules']['delta']['losers']['auc']:.3f}"
    text = page.locator("body").inner_text()
    for sentence in verdict(one["rules"]):
        assert sentence in text
    for setting in ("temperature", "num_generations", "prompts_per_batch", "token_gradient='lm_head'"):
        assert setting in text
    marks = page.locator("article").first.locator("mark")
    assert marks.count() == len(results["settings"]["rules"])  # one wrong token, under every rule


@pytest.mark.parametrize("width", [1300, 420])
def test_windows_do_not_scroll_sideways(audited, open_page, width):
    page = open_page(audited / "audit.html", viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_rules(audited, open_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(audited / "audit.html", color_scheme=scheme, bypass_csp=True)
    results = axe.Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def test_hostile_text_is_shown_and_does_nothing(audited, tmp_path, open_page):
    lines = [json.loads(line) for line in (audited / "samples.jsonl").read_text().splitlines()]
    for line in lines:
        if "tokens" in line:
            line["prompt"] = "".join(HOSTILE[:4])
            line["tokens"] = [HOSTILE[i % len(HOSTILE)] for i in range(len(line["tokens"]))]
    (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (tmp_path / "settings.json").write_text((audited / "settings.json").read_text())
    (tmp_path / "gradients").symlink_to(audited / "gradients")
    page = open_page(write_page(tmp_path, summarise(tmp_path)))
    assert page.locator("img, iframe, script, main a:not([href^='#'])").count() == 0
    assert "<script>alert(1)</script>" in page.locator("article").first.inner_text()
    assert "\u202e" not in page.locator("body").inner_text()
