"""
A picture of a run's report, docs/report.png: the verdict, the plots, and completions shaded by their credit.

    python -m delta_trl train --config recipes/quickstart/addition.yaml --max_steps 40 --log_token_credit 4 \\
        --eval_dataset_name recipes/quickstart/test.jsonl --eval_strategy steps --eval_steps 20 --eval_on_start true \\
        --num_generations_eval 1 --per_device_eval_batch_size 256 --output_dir outputs/quickstart
    python -m scripts.build.report_picture outputs/quickstart

The second command keeps what the report reads of the run in scripts/build/quickstart. Without a run it draws that one
again, as needed when the report says something else: the picture holds the report's text, and
tests/scripts/build/test_report_picture.py compares it. Needs a Chromium of the system and
`pip install playwright pillow`.
"""

import argparse
import io
import json
import re
import shutil
import sys
import tempfile
from html import unescape
from pathlib import Path

from PIL import Image, PngImagePlugin

from delta_trl.data.records import FOLDER
from delta_trl.files import SETTINGS, STATE, write_json
from delta_trl.report import write_report
from delta_trl.report.page import SHOWN


WIDTH = 1240
HEIGHT = 1280
HIDE = ".note { display: none !important }"
RUN = Path(__file__).with_name("quickstart")
PICTURE = Path(__file__).parents[2] / "docs" / "report.png"


def keep(run: Path) -> None:
    """Copy what the report reads, without paths of this machine."""
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir()
    shutil.copy(run / STATE, RUN)
    shutil.copytree(run / FOLDER, RUN / FOLDER)
    settings = json.loads((run / SETTINGS).read_text())
    known = {**settings["arguments"], **settings}
    write_json({name: known[name] for name in SHOWN if name in known}, RUN / SETTINGS)


def text_of(report: Path) -> str:
    """The text of a report's page, without markup."""
    body = report.read_text().split("<body>")[1].split("<script")[0]
    lines = re.sub("<[^>]*>", " ", body).splitlines()
    words = [" ".join(unescape(line).split()) for line in lines]
    return "\n".join(filter(None, words))


def draw(run: Path, picture: Path) -> None:
    from playwright.sync_api import sync_playwright  # which comparing the text does not need

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium on PATH (Debian: apt-get install chromium)")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report = write_report(run, Path(folder) / "report.html")
        text = text_of(report)
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(report.as_uri())
        page.add_style_tag(content=HIDE)
        blamed = page.locator("details[open] .losers .tokens > [class^=a]").first
        blamed.click()  # shows its values
        shot = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    # 256 colours are enough for flat surfaces, and a third of the size; rare ones have to stay
    few = shot.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    told = PngImagePlugin.PngInfo()
    told.add_itxt("report", text, zip=True)
    few.save(picture, optimize=True, pnginfo=told)
    print(f"{picture} ({picture.stat().st_size / 1000:.0f} kB)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="output_dir of a run, in place of the one that is kept")
    args = parser.parse_args()
    if args.run:
        keep(args.run)
    draw(RUN, PICTURE)


if __name__ == "__main__":
    main()
