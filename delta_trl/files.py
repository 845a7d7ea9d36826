"""Atomic writes, which leave no partial file even if the process is killed, and whole checkpoints."""

import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any


STATE = "trainer_state.json"  # says how far a run, or a checkpoint, came
SETTINGS = "training_settings.json"  # says what a run was started with
MANIFEST = "checkpoint_files.json"  # of a checkpoint, written last: its other files, and their sizes


def write_atomically(data: bytes, path: Path) -> None:
    """Write a file and create its parent folders. If several processes write it at once, the last one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")  # unique to this call
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(content: dict, path: Path) -> None:
    write_atomically((json.dumps(content, indent=2) + "\n").encode(), path)


def read_json(path: Path) -> dict[str, Any]:
    """What a JSON file holds; empty if there is none, or if it is cut off."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}


def checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints of a run by their optimiser steps, in order; whole or not."""
    by_step = {}
    for path in folder.glob("checkpoint-*"):
        step = path.name.removeprefix("checkpoint-")
        if step.isdecimal():
            by_step[int(step)] = path
    return dict(sorted(by_step.items()))


def begin_checkpoint(folder: Path) -> None:
    """Make an empty folder. What an earlier checkpoint left there could be taken for a part of this one."""
    (folder / MANIFEST).unlink(missing_ok=True)  # first: if this is interrupted, the folder is no whole checkpoint
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def finish_checkpoint(folder: Path) -> None:
    """Write the manifest. Every process has written its part."""
    write_json(file_sizes(folder), folder / MANIFEST)


def file_sizes(folder: Path) -> dict[str, int]:
    """The bytes of each file in a folder, by its path there."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    return sizes


def missing_part(checkpoint: Path, sizes: dict[str, int] | None = None) -> str | None:
    """
    The first file that a checkpoint lacks, in words; `None` if it is whole.

    Args:
        checkpoint (`Path`): Its folder.
        sizes (`dict[str, int]`, *optional*): The bytes of the files that it must have. Defaults to its manifest.
    """
    sizes = sizes or read_json(checkpoint / MANIFEST)
    if not sizes:
        return f"{MANIFEST}, which is written last, is missing or cut off"
    for name, size in sizes.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} of {size} bytes"
    return None


def last_whole_checkpoint(run: Path) -> Path | None:
    """The newest whole checkpoint of a run, or `None`."""
    whole = [path for path in checkpoints(run).values() if missing_part(path) is None]
    return whole[-1] if whole else None
