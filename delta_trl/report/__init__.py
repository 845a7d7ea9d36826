"""See what token credit does to a run: `delta-trl inspect`, and [`token_heatmap`] for notebooks."""

from pathlib import Path

from ..arguments.errors import UsageError
from .heatmap import TokenHeatmap, token_heatmap
from .page import write_report_page
from .reader import Run, read_run


__all__ = ["Run", "TokenHeatmap", "read_run", "token_heatmap", "write_report"]


def write_report(
    run: str | Path, output: str | Path, *, step: int | None = None, settings: dict | None = None
) -> Path:
    """
    Write what a run has recorded as one HTML file that opens offline.

    Args:
        run (`str | Path`): A run directory.
        output (`str | Path`): The HTML file.
        step (`int`, *optional*): Show all groups of this step, instead of some of the whole run.
        settings (`dict`, *optional*): For the head of the page, in place of those that the run recorded.

    Returns:
        `Path`: The HTML file.

    Raises:
        UsageError: If the run has nothing to show or no such step, or if a file cannot be read or written.
    """
    found = read_run(run)
    found.settings = settings or found.settings
    steps = sorted({group.step for group in found.groups})
    if step is not None and step not in steps:
        raise UsageError(f"--step {step}: completions were recorded at {', '.join(map(str, steps)) or 'no step'}.")
    try:
        write_report_page(found, Path(output), step)
    except OSError as error:
        raise UsageError(f"{output}: the report cannot be written ({error.strerror}).") from error
    return Path(output)
