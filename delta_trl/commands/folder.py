"""Whether a folder holds a run, which goes on or is left alone."""

from pathlib import Path

from accelerate.logging import get_logger

from ..arguments.errors import UsageError
from ..arguments.options import is_given, is_true
from ..files import LAST_FILE, SETTINGS, checkpoints, is_complete


logger = get_logger(__name__)

FINISHED = (LAST_FILE, "config.json", "adapter_config.json")  # of a run, or of a model


def resume_from(given: str | None, output_dir: str) -> bool | str | None:
    """
    What `resume_from_checkpoint` means for a trainer: the last checkpoint under `output_dir`, a named one, or none.
    `true` without a checkpoint starts anew: launchers restart a process with the same command. So does a run that
    failed before its first checkpoint: the record of its settings alone is nothing to lose.

    Raises:
        UsageError: If a run that starts anew would write over another one, or over a model.
    """
    folder = Path(output_dir)
    if is_given(given) and not is_true(given):
        return given
    if is_true(given) and any(map(is_complete, checkpoints(folder).values())):
        return True
    refuse_another_run(folder, FINISHED if is_true(given) else (*FINISHED, "checkpoint-*"))
    if is_true(given):
        logger.warning(f"No complete checkpoint under {output_dir}: training from the start.")
    return None


def refuse_another_run(folder: Path, names: tuple[str, ...] = (*FINISHED, SETTINGS, "checkpoint-*")) -> None:
    """Raise `UsageError` if a folder holds such files of a run or a model."""
    found = []
    for name in names:
        found += sorted(path.name for path in folder.glob(name))
    if found:
        remedy = ""
        if any(map(is_complete, checkpoints(folder).values())):
            remedy = ", or go on with its run (`delta-trl train --resume_from_checkpoint true`)"
        raise UsageError(
            f"output_dir={str(folder)!r} holds a run or a model ({', '.join(found[:3])}), which would be written "
            f"over. Choose another folder{remedy}."
        )
