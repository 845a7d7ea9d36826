"""What the pages say is what the files of results say."""

import re

import pytest

from scripts.build.tables import FUNCTIONS, PAGES, ROOT, rewritten


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_its_files_say(name):
    """If not: python -m scripts.build.tables."""
    page = (ROOT / name).read_text()
    assert page.count("<!-- begin ") == page.count("<!-- end -->") > 0
    assert rewritten(page) == page


def test_every_function_has_a_page():
    pages = "".join((ROOT / name).read_text() for name in PAGES)
    assert set(re.findall(r"<!-- begin (\w+)", pages)) == set(FUNCTIONS)


def test_wrong_figures_are_replaced():
    right = "It takes <!-- begin ratio overhead_5m_aligned delta -->1.23<!-- end --> of the time."
    assert rewritten(right.replace("1.23", "0.99")) == right
    table = (
        "<!-- begin audit -->\n\n| rule | losers | winners |\n| --- | --- | --- |\n| delta | x | y |\n\n<!-- end -->"
    )
    assert "| delta | 0.38 to 0.88, 9/1 of 11 | " in rewritten(table)
