"""What other libraries print, and how often."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import datasets
import huggingface_hub
import transformers


def no_bars_in_files() -> None:
    """Unless errors go to a terminal, keep the libraries' bars (downloads, loading) out of them."""
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        huggingface_hub.utils.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()


@contextmanager
def equal_warnings_once() -> Iterator[None]:
    """Python itself forgets what it has shown wherever `catch_warnings` is used, which libraries do in every step."""
    shown, show = set(), warnings.showwarning

    def show_once(message, category, filename, lineno, *rest, **others):
        if (warning := (str(message), category, filename, lineno)) not in shown:
            shown.add(warning)
            show(message, category, filename, lineno, *rest, **others)

    warnings.showwarning = show_once
    try:
        yield
    finally:
        warnings.showwarning = show
