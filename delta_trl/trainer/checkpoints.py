"""Which checkpoint to resume from, and which ones a run can be resumed from exactly."""

import re
from fractions import Fraction
from pathlib import Path

from accelerate.logging import get_logger

from ..arguments.options import is_given, is_true
from ..files import is_complete


logger = get_logger(__name__)


def last_complete_checkpoint(output_dir: str | Path, every: Fraction | int = 1) -> Path | None:
    """
    The newest checkpoint under `output_dir` that was written to its end, or `None`. Between rollout batches, which are
    `every` so many steps, if there is one: elsewhere the rest of a rollout batch would be dropped.
    """
    checkpoints = {}
    for path in Path(output_dir).glob("checkpoint-*"):
        step = re.fullmatch(r"checkpoint-(\d+)", path.name)
        if step and is_complete(path):
            checkpoints[int(step[1])] = path
    if not checkpoints:
        return None
    newest = max(checkpoints)
    between = max((step for step in checkpoints if not step % every), default=None)
    if between is None:
        logger.warning(
            f"checkpoint-{newest} was saved inside a rollout batch of {float(every):g} optimiser steps, the rest of "
            "which is dropped: the run will differ from an uninterrupted one."
        )
    elif between < newest:
        logger.warning(
            f"Going on from checkpoint-{between}: checkpoint-{newest} was saved inside a rollout batch of "
            f"{float(every):g} optimiser steps, the rest of which would be dropped. Name it to go on from there "
            "all the same."
        )
    return checkpoints[newest if between is None else between]


def resolve_resume(value: bool | str | None, output_dir: str | Path, every: Fraction | int = 1) -> Path | None:
    """
    The checkpoint that `resume_from_checkpoint` means: `True` the last complete one under `output_dir` (`None` if
    there is none yet), a path that very checkpoint, `None` or `False` none. `every` as in `last_complete_checkpoint`.

    Raises:
        ValueError: If a named checkpoint is missing or incomplete.
    """
    if not is_given(value):
        return None
    path = last_complete_checkpoint(output_dir, every) if is_true(value) else Path(str(value))
    if path is None:
        return None
    if not is_complete(path):
        raise ValueError(
            f"resume_from_checkpoint={str(value)!r}: not a complete checkpoint (no whole trainer_state.json in it). "
            f"Use `true` for the last complete one under {str(output_dir)!r}."
        )
    if not any(path.glob("rng_state*")):
        logger.warning(
            f"{path} holds the model alone (save_only_model): the optimizer, its schedule and the random numbers "
            "start anew, and the run will differ from an uninterrupted one."
        )
    return path
