"""Attempts of an execution: a lost worker or a busy server costs another attempt, not a result."""

import logging
import time
from collections.abc import Callable

from .limits import Outcome, Result


logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3


def retried(run: Callable[[], Result], errors: tuple[type[Exception], ...], seconds: float, name: str) -> Result:
    """
    The result of the first attempt that gives one. If none does, the sandbox has failed (`Outcome.SANDBOX_ERROR`).

    Args:
        run (`Callable[[], Result]`): One attempt.
        errors (`tuple[type[Exception], ...]`): What an attempt without a result raises.
        seconds (`float`): Pause after the first attempt; it doubles after each further one.
        name (`str`): What is attempted, for the log.
    """
    problem = ""
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            time.sleep(seconds * 2 ** (attempt - 1))
        try:
            return run()
        except errors as error:
            problem = f"{type(error).__name__}: {error}"
            logger.warning("%s failed (attempt %d of %d): %r", name, attempt + 1, MAX_ATTEMPTS, problem)
    return Result(Outcome.SANDBOX_ERROR, stderr=problem.encode())
