"""`delta-trl inspect`."""

from pathlib import Path

from ..arguments.command_line import CommandParser
from ..arguments.errors import UsageError
from ..report import MIN_COUNT, write_report


def main(args: list[str]) -> None:
    """Write the report of one run or of two, or show a step's completions in the terminal."""
    parser = CommandParser(
        prog="delta-trl inspect",
        description="Write what a run has recorded as one HTML file that opens offline.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN_DIR", help="output_dir of a run; two are compared")
    parser.add_argument(
        "--output_dir",
        type=Path,
        metavar="DIR",
        help="folder for report.html, or report-vs-NAME.html of two; if not given, the first RUN_DIR",
    )
    parser.add_argument("--step", type=int, metavar="N", help="only the completions recorded at this step")
    parser.add_argument("--min_count", type=int, default=MIN_COUNT, metavar="N",
                        help="how often a token type must occur to be in the clouds (%(default)s)")  # fmt: skip
    parser.add_argument("--terminal", action="store_true", help="completions in the terminal instead of a file")
    parser.add_argument("--relative", action="store_true",
                        help="with --terminal: shade by the distance from the mean of a token's side")  # fmt: skip
    options = parser.read(args)
    if len(options.runs) > 2:
        raise UsageError(f"inspect: expected one run directory, or two to compare, got {len(options.runs)}.")
    if options.min_count < 1:
        raise UsageError(f"--min_count {options.min_count}: expected a positive number.")
    if options.terminal:
        if len(options.runs) > 1 or options.output_dir:
            raise UsageError("--terminal shows one run, and writes no file.")
        from ..report.terminal import show

        show(options.runs[0], options.step, relative=options.relative, min_count=options.min_count)
        return
    if options.relative:
        raise UsageError("--relative goes with --terminal: the page has a switch for it.")
    # The name of a comparison has the second run's name, so that the first run's own report stays.
    name = "-vs-".join(["report", *(Path(run).resolve().name for run in options.runs[1:])])
    output = (options.output_dir or Path(options.runs[0])) / f"{name}.html"
    print(write_report(options.runs, output, min_count=options.min_count, step=options.step))
