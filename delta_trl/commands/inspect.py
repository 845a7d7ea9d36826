"""`delta-trl inspect`."""

import argparse
from pathlib import Path

from ..arguments.errors import mistakes
from ..report import write_report


def main(args: list[str]) -> None:
    """Write the report of a run, and print where. Raises `UsageError` if it has no records."""
    parser = argparse.ArgumentParser(
        prog="delta-trl inspect",
        description="Write what a run has recorded as one HTML file that opens offline: RUN_DIR/report.html.",
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="output_dir of a run")
    parser.add_argument("--step", type=int, metavar="N", help="only the completions recorded at this step")
    options = parser.parse_args(args)
    with mistakes():
        print(write_report(options.run, options.run / "report.html", step=options.step))
