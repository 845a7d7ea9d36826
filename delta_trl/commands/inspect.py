"""`delta-trl inspect`."""

import argparse
from pathlib import Path

from ..report import write_report


def main(args: list[str]) -> None:
    """Write the report of a run, and print where. Raises `UsageError` if it has no records."""
    parser = argparse.ArgumentParser(
        prog="delta-trl inspect",
        description="Write what a run has recorded as one HTML file that opens offline: RUN_DIR/report.html.",
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="output_dir of a run")
    run = parser.parse_args(args).run
    print(write_report([run], run / "report.html"))
