"""The picture of the report shows what the report says."""

import shutil

import pytest
from PIL import Image

from delta_trl.report import write_report
from scripts.build.report_picture import PICTURE, RUN, draw, text_of


def test_the_picture_shows_what_the_report_says(tmp_path):
    """If not: python -m scripts.build.report_picture."""
    assert Image.open(PICTURE).text["report"] == text_of(write_report(RUN, tmp_path / "report.html"))


@pytest.mark.processes
@pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium on PATH")
def test_the_drawn_picture_keeps_its_text(tmp_path):
    draw(RUN, tmp_path / "report.png")
    picture = Image.open(tmp_path / "report.png")
    assert picture.width > 300
    assert picture.text["report"].startswith("quickstart\n")
