"""Whether a folder holds a run, which goes on or is left alone."""

from argparse import ArgumentTypeError
from pathlib import Path

from accelerate.logging import get_logger
from transformers.hf_argparser import string_to_bool

from ..arguments.errors import UsageError
from ..files import SETTINGS, STATE, last_whole_checkpoint
from ..trainer.checkpoints import newest_checkpoint


logger = get_logger(__name__)

FINISHED = (STATE, "config.json", "adapter_config.json")  # of a run, or of a model


def resume_from(checkpoint: str | None, output_dir: str) -> str | None:
    """
    The checkpoint that `resume_from_checkpoint` means: the newest whole one under `output_dir`, a named one, or none.
    `true` without a checkpoint starts anew: launchers restart a process with the same command. So does a run that
    failed before its first checkpoint: the record of its settings alone is nothing to lose.

    Raises:
        UsageError: If no checkpoint is whole, or a run that starts anew would write over another one, or over a model.
    """
    folder = Path(output_dir)
    try:
        goes_on = string_to_bool(checkpoint or "no")
    except ArgumentTypeError:
        return checkpoint  # names a checkpoint
    if goes_on and (newest := newest_checkpoint(folder)):
        return str(newest)
    refuse_another_run(folder, (*FINISHED, "checkpoint-*"))
    if goes_on:
        logger.warning(f"No checkpoint under {output_dir}: training from the start.")
    return None


def refuse_another_run(folder: Path, names: tuple[str, ...] = (*FINISHED, SETTINGS, "checkpoint-*")) -> None:
    """Raise `UsageError` if a folder holds such files of a run or a model."""
    written: list[Path] = []
    for name in names:
        written += folder.glob(name)
    if not written:
        return
    remedy = "Choose another folder"
    if last_whole_checkpoint(folder):
        remedy += ", or go on with its run (`delta-trl train --resume_from_checkpoint true`)"
    held = f"a run or a model ({written[0].name})"
    raise UsageError(f"output_dir={str(folder)!r} holds {held}, which would be written over. {remedy}.")
