"""The page of an audit in Chromium: narrow windows and accessibility."""

import pytest

from tests.audit.test_page import line, of_side, rendered


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    path = tmp_path_factory.mktemp("audit") / "audit.html"
    rules = {"delta:token_gradient=lm_head": {"losers": of_side(0.8, "above"), "winners": of_side(0.2, "below")}}
    lines = [line(200, [70], scores={rule: list(range(200)) for rule in rules})]
    path.write_text(rendered(rules, lines))
    return path


@pytest.mark.parametrize("width", [1300, 420])
def test_windows_do_not_scroll_sideways(audited, open_page, width):
    page = open_page(audited, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_rules(audited, open_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(audited, color_scheme=scheme, bypass_csp=True)
    results = axe.Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
