"""Checks whether a folder holds a run, and removes one. Imports nothing heavy."""

import os
import re
import shutil
from pathlib import Path

from ..arguments.errors import UsageError
from ..arguments.options import is_given, is_true
from ..files import LAST_FILE, SETTINGS, checkpoints, is_complete


# Files by which a run is recognised
RECORDS = ("completions/completions_*.parquet", "token_credit/token_*.parquet", LAST_FILE)
# Files of its model. They are removed with the run: the next model's files would be mixed with them
MODEL = (
    *("model.safetensors", "model-*.safetensors", "model.safetensors.index.json", "pytorch_model*.bin"),
    *("adapter_model.*", "adapter_config.json", "chat_template.jinja", "training_args.bin"),
)


def refuse_unwritable(folder: Path) -> None:
    """Raise `UsageError` if a folder is a file, or cannot be made or written to."""
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UsageError(f"output_dir={str(folder)!r}: {existing} is not a folder that can be written to.")


def refuse_another_run(output_dir: object, resume: object = None, overwrite: object = False, *inputs: object) -> None:
    """
    Raise `UsageError` if training into a folder would mix with, or write over, what it holds.

    Args:
        output_dir (`str` or `Path`): The folder.
        resume (`bool` or `str`, *optional*): `resume_from_checkpoint`; a run may resume from this folder's own.
        overwrite (`bool`, *optional*): Whether the run there may be removed.
        *inputs (`str`, *optional*): The model and the data; hub ids or paths.
    """
    folder = Path(str(output_dir))
    refuse_unwritable(folder)
    for given in filter(None, map(str, filter(None, inputs))):
        path = Path(given).resolve()
        inside = path == folder.resolve() or (is_true(overwrite) and folder.resolve() in path.parents)
        if path.exists() and inside:
            raise UsageError(
                f"output_dir={str(output_dir)!r} holds {given!r}, which is trained from and would be written over: "
                "choose another folder."
            )
    if is_true(overwrite):
        if is_given(resume):
            raise UsageError("Set either resume_from_checkpoint or overwrite_output_dir: they contradict each other.")
        return
    steps = [step for step, path in checkpoints(folder).items() if is_complete(path)]
    records = [path for pattern in RECORDS for path in folder.glob(pattern)]
    if not steps and not records:
        return
    unfinished = not (folder / LAST_FILE).is_file()
    if is_true(resume) and (steps or unfinished):  # if it has no checkpoint yet, it starts anew
        return
    if is_given(resume) and not is_true(resume):
        named = Path(str(resume))
        if folder.resolve() in (named.parent.resolve(), named.resolve().parent):
            refuse_another_branch(folder, named, steps)
            return
    recorded = [int(step[1]) for path in records if (step := re.search(r"_(\d+)$", path.stem))]
    go_on = "go on with it (--resume_from_checkpoint true), " if steps else ""
    raise UsageError(
        f"output_dir={str(output_dir)!r} holds a run that has reached step {max([*steps, *recorded], default=0)}, "
        f"which would be written over: {go_on}choose another folder (--output_dir), or have it removed "
        "(--overwrite_output_dir true)."
    )


def refuse_another_branch(folder: Path, named: Path, steps: list[int]) -> None:
    """
    Raise `UsageError` if the folder holds later checkpoints than the one to resume from: they would be mixed with new
    ones. Except after a crash: a launcher that restarts a process names the same checkpoint again.
    """
    number = re.search(r"\d+$", named.name)
    later = sorted(step for step in steps if number and step > int(number[0]))
    if later and not _is_restart():
        raise UsageError(
            f"resume_from_checkpoint={str(named)!r}: {str(folder)!r} also holds later checkpoints "
            f"({', '.join(map(str, later))}), which `resume_from_checkpoint true` would take for this run's own. "
            "Remove them, or go on in another folder (--output_dir)."
        )


def _is_restart() -> bool:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def remove_run(output_dir: str | Path) -> None:
    """
    Remove the files of a run from a folder, and no others. Does nothing if a launcher has restarted this process after
    a crash: then the files are those of this run.
    """
    folder = Path(output_dir)
    if _is_restart():
        return
    ended = any((folder / name).is_file() for name in (LAST_FILE, "training_args.bin"))
    for path in checkpoints(folder).values():
        if path.is_symlink():
            path.unlink()
        else:
            (path / LAST_FILE).unlink(missing_ok=True)  # first: an interrupted removal leaves it incomplete
            shutil.rmtree(path)
    for pattern in (*RECORDS, SETTINGS, *(MODEL if ended else ())):
        for path in folder.glob(pattern):
            path.unlink()
