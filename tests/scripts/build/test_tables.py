"""What the pages say is what the files of results say."""

import json
import re

import pytest

from scripts.build.tables import BENCHMARKS, FUNCTIONS, PAGES, ROOT, rewritten

from ...corpus.answers import labelled_answers


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_its_files_say(name):
    """If not: python -m scripts.build.tables."""
    page = (ROOT / name).read_text()
    assert page.count("<!-- begin ") == page.count("<!-- end -->") > 0
    assert rewritten(page) == page


def test_every_function_has_a_page():
    pages = "".join((ROOT / name).read_text() for name in PAGES)
    assert set(re.findall(r"<!-- begin (\w+)", pages)) == set(FUNCTIONS)


def test_errors_of_our_grader_are_those_that_its_labelled_answers_name():
    """If not: python -m scripts.benchmarks.graders --output scripts/benchmarks/results/graders.json."""
    wrong_grades = [case["known"] for case in labelled_answers() if case.get("known", case["label"]) != case["label"]]
    content = json.loads((BENCHMARKS / "graders.json").read_text())
    ours = content["graders"]["math_reward"]
    assert sum(ours.values()) == len(wrong_grades)
    assert ours["wrong, scored 1"] == wrong_grades.count(1)


def test_wrong_figures_are_replaced():
    right = "It takes <!-- begin ratio overhead_5m_aligned delta -->1.23<!-- end --> of the time."
    assert rewritten(right.replace("1.23", "0.99")) == right
    table = (
        "<!-- begin audit -->\n\n| rule | losers | winners |\n| --- | --- | --- |\n| delta | x | y |\n\n<!-- end -->"
    )
    assert "| delta | 0.38 to 0.88, 9/1 of 11 | " in rewritten(table)
