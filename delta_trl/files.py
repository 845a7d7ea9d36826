"""
Atomic writes, which leave no partial file even if the process is killed; folder locks; complete checkpoints; errors
that name the folder being written.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .arguments.errors import UsageError


LAST_FILE, ENTROPY_STATE = "trainer_state.json", "entropy_ctrl_state.json"  # of a checkpoint
SETTINGS = "training_settings.json"  # says what a run was started with, not how far it came


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


class FolderLock:
    """
    Reentrant context manager that creates a folder and keeps other processes out of it. The system frees the lock of a
    process that ends, however it ends. On a file system without locks, nobody is kept out.

    Raises:
        UsageError: On entering, if another process is writing to the folder, or nobody can.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._file: BinaryIO | None = None
        self._entered = 0

    def __enter__(self) -> None:
        if self._file is None:
            self._file = self._locked_file()
        self._entered += 1

    def __exit__(self, *error) -> None:
        self._entered -= 1
        if self._file and not self._entered:
            self._file.close()
            self._file = None

    def _locked_file(self) -> BinaryIO:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / ".lock").open("wb")
        except OSError as error:
            raise UsageError(
                f"output_dir={str(self.folder)!r} cannot be written to ({error.strerror}): choose another one."
            ) from error
        try:
            # not `flock`: forked processes would share its lock and could hold it longer than this one
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.close()
            raise UsageError(
                f"Another process is writing to {self.folder}: wait for its end, or choose another --output_dir."
            ) from None
        except OSError:  # a file system without locks
            pass
        return file


def differences(before: dict, now: dict) -> dict[str, tuple[Any, Any]]:
    """The settings that differ between two records, by dotted key: (value before, value now)."""
    before, now = _flat(before), _flat(now)
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return {key: (before.get(key), now.get(key)) for key in keys}


def in_words(differences: dict[str, tuple[Any, Any]]) -> str:
    return "; ".join(f"{key} was {before!r} and is {now!r}" for key, (before, now) in differences.items())


def _flat(settings: dict, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


@contextlib.contextmanager
def names_disk(folder: Path) -> Iterator[None]:
    """Add to errors what was being written and how much disk space is left: torch's "unexpected pos" says neither."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(OSError):  # the disk may be gone altogether
            if not getattr(error, "__notes__", None):  # a nested call may have added one
                left = shutil.disk_usage(next(filter(Path.exists, (folder, *folder.parents)))).free / 2**20
                error.add_note(f"This was raised while {folder} was written, with {left:.1f} MiB left on its disk.")
        raise


def checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints of a run by their optimiser steps, in order; complete or not."""
    found = {path: re.fullmatch(r"checkpoint-(\d+)", path.name) for path in folder.glob("checkpoint-*")}
    return dict(sorted((int(step[1]), path) for path, step in found.items() if step))


def begin_checkpoint(folder: Path) -> None:
    """Create the folder. Remove the last file of an earlier checkpoint: with it, this one would count as complete."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LAST_FILE).unlink(missing_ok=True)


def is_complete(checkpoint: Path) -> bool:
    """
    Whether a checkpoint was completely written.

    `Trainer` writes `trainer_state.json` last. Our trainer does so after every process has written its part. TRL then
    writes the state of its adaptive entropy again. A file cut off by a kill or a full disk is not valid JSON.
    """
    entropy = checkpoint / ENTROPY_STATE
    try:
        json.loads((checkpoint / LAST_FILE).read_bytes())
        if entropy.exists():
            json.loads(entropy.read_bytes())
    except (OSError, ValueError):
        return False
    return True
