"""
A picture of a run's report: the verdict, the plots, and completions shaded by their credit.

    delta-trl train --config recipes/quickstart/addition.yaml --max_steps 40 --log_token_credit 4 \\
        --output_dir outputs/quickstart
    python -m scripts.build.report_picture outputs/quickstart docs/report.png

Needs a Chromium of the system and `pip install playwright pillow`.
"""

import argparse
import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from delta_trl.report import write_report


WIDTH = 1240
HEIGHT = 1300
HIDE = ".note { display: none !important }"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="output_dir of a run")
    parser.add_argument("picture", type=Path, help="the PNG to write")
    parser.add_argument("--dark", action="store_true")
    args = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium on PATH (Debian: apt-get install chromium)")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report = write_report(args.run, Path(folder) / "report.html")
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="dark" if args.dark else "light"
        )
        page.goto(report.as_uri())
        page.add_style_tag(content=HIDE)
        blamed = page.locator("details[open] .losers .tokens > [class^=a]").first
        blamed.click()  # shows its values
        picture = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    # 256 colours are enough for flat surfaces, and a third of the size; rare ones have to stay
    few = picture.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(args.picture, optimize=True)
    print(f"{args.picture} ({args.picture.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
