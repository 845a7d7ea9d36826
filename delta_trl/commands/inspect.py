"""`delta-trl inspect`."""

from pathlib import Path

from ..arguments.command_line import CommandParser
from ..report import write_report


def main(args: list[str]) -> None:
    """Write the report of a run."""
    parser = CommandParser(
        prog="delta-trl inspect",
        description="Write what a run has recorded as one HTML file that opens offline.",
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="output_dir of a run")
    parser.add_argument("--output_dir", type=Path, metavar="DIR", help="folder for report.html; if not given, RUN_DIR")
    parser.add_argument("--step", type=int, metavar="N", help="only the completions recorded at this step")
    options = parser.read(args)
    print(write_report(options.run, (options.output_dir or options.run) / "report.html", step=options.step))
