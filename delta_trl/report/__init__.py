"""See what token credit does to a run: `delta-trl inspect`, and [`token_heatmap`] for notebooks."""

from importlib import import_module
from pathlib import Path

from ..arguments.errors import UsageError
from .heatmap import TokenHeatmap, token_heatmap
from .run import Run, read_run


__all__ = ["Run", "TokenHeatmap", "read_run", "token_heatmap", "write_report"]

MIN_COUNT = 20


def write_report(
    runs: list[str | Path], output: str | Path, *, min_count: int = MIN_COUNT, step: int | None = None
) -> Path:
    """
    Write the records of one or two runs as one HTML file that opens offline.

    Needs `pip install jinja2 plotly wordcloud`.

    Args:
        runs (`list[str | Path]`): One or two run directories.
        output (`str | Path`): The HTML file.
        min_count (`int`, *optional*, defaults to `20`): How often a token type must occur to be in the clouds.
        step (`int`, *optional*): Show only this step's completions, instead of some from the whole run.

    Returns:
        `Path`: The HTML file.

    Raises:
        UsageError: If a run cannot be read, has nothing to show or no such step, if a package is missing, or if the
            file cannot be written.
    """
    check_packages()
    from .page import write_page

    read = [read_run(run) for run in runs]
    if step is not None:
        check_step(read, step)
    try:
        write_page(read, Path(output), min_count=min_count, step=step)
    except OSError as error:
        raise UsageError(f"{output}: the report cannot be written ({error.strerror}).") from error
    return Path(output)


def check_packages() -> None:
    """Raise `UsageError` if a package that reports need is missing."""
    for package in ("jinja2", "plotly", "wordcloud"):
        try:
            import_module(package)
        except ImportError as error:
            raise UsageError(f"The report needs {package}: pip install jinja2 plotly wordcloud") from error


def check_step(runs: list[Run], step: int) -> None:
    """Raise `UsageError` if no completion was recorded at `step`, naming the recorded steps near it."""
    recorded = sorted({group.step for run in runs for group in run.groups}, key=lambda s: (abs(s - step), s))
    if step not in recorded:
        near = ", ".join(map(str, sorted(recorded[:5]))) or "none"
        raise UsageError(f"--step {step}: no completions were recorded at this step. The nearest ones: {near}.")
