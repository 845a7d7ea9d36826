"""The folder of a run: whether it holds one already. Imports nothing heavy."""

import re
import shutil
from pathlib import Path

from ..errors import RecipeError


# What a run writes beside its model
MARKS = ("checkpoint-*", "completions", "token_credit", "trainer_state.json")
MODEL = ("*.safetensors", "*.safetensors.index.json", "adapter_config.json", "training_args.bin", "report.html")


def is_true(value: object) -> bool:
    return str(value).lower() == "true"


def refuse_another_run(output_dir: str | Path, resume: object = None, overwrite: object = False) -> None:
    """
    Raise `RecipeError` if training into a folder would mix with, or write over, the run that it holds.

    Args:
        output_dir (`str` or `Path`): The folder.
        resume (`bool` or `str`, *optional*): `resume_from_checkpoint`; one of this folder's may go on.
        overwrite (`bool`, *optional*): Whether the run there may go.
    """
    folder = Path(output_dir)
    if folder.exists() and not folder.is_dir():
        raise RecipeError(f"output_dir={str(output_dir)!r} is a file: name a folder.")
    if is_true(overwrite):
        if resume and str(resume).lower() != "false":
            raise RecipeError(
                "resume_from_checkpoint and overwrite_output_dir contradict each other: set one of them."
            )
        return
    if not any(True for mark in MARKS for _ in folder.glob(mark)):
        return
    checkpoints = _steps(folder)
    unfinished = not (folder / "trainer_state.json").is_file()
    if is_true(resume) and (checkpoints or unfinished):  # without a checkpoint yet, from the start
        return
    if resume and str(resume).lower() not in ("true", "false") and Path(resume).resolve().parent == folder.resolve():
        return
    reached = f" that has reached step {max(_steps(folder, all_records=True), default=0)}"
    go_on = "go on with it (--resume_from_checkpoint true), " if checkpoints else ""
    raise RecipeError(
        f"output_dir={str(output_dir)!r} holds a run{reached}, which would be written over: {go_on}choose another "
        "folder (--output_dir), or have it removed (--overwrite_output_dir true)."
    )


def _steps(folder: Path, all_records: bool = False) -> list[int]:
    """The steps of complete checkpoints, or of everything that has a step in its name."""
    names = [path.parent.name for path in folder.glob("checkpoint-*/trainer_state.json")]
    if all_records:
        names += [path.stem for kind in ("completions", "token_credit") for path in folder.glob(f"{kind}/*.parquet")]
    return [int(step[1]) for name in names if (step := re.search(r"(\d+)$", name))]


def remove_run(output_dir: str | Path) -> None:
    """Remove what a run has left in a folder, and nothing else that is there."""
    for pattern in (*MARKS, *MODEL):
        for path in Path(output_dir).glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
