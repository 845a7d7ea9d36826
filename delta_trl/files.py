"""
Files that are there as a whole or not at all, also if the process is killed; folders in which one process writes at a
time; errors that say where they arose.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .arguments.errors import UsageError


LAST_FILE, ENTROPY_STATE = "trainer_state.json", "entropy_ctrl_state.json"  # of a checkpoint
SETTINGS = "training_settings.json"  # says what a run was started with, not how far it came


def write_atomically(data: bytes, path: Path) -> None:
    """Write a file, and the folders above it. Of several writers at once, the last one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")  # of this call alone
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(content: dict, path: Path) -> None:
    write_atomically((json.dumps(content, indent=2) + "\n").encode(), path)


class FolderLock:
    """
    Keeps other processes out of a folder, which is made, while it is entered; who is in may enter again. The system
    frees the lock of a process that ends, however it ends. On a file system without locks, nobody is kept out.

    Raises:
        UsageError: On entering, if somebody else is writing to the folder.
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
        self.folder.mkdir(parents=True, exist_ok=True)
        file = (self.folder / ".lock").open("wb")
        try:
            # not `flock`, whose locks the processes that this one forks would hold as well, and longer
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
    """What differs between two records of settings, as JSON has them: by dotted key, what was and what is."""
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
    """Note on an error what was being written, and how much room is left: torch's "unexpected pos" has neither."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(OSError):  # the disk may be gone altogether
            if not getattr(error, "__notes__", None):  # from a call inside
                left = shutil.disk_usage(next(filter(Path.exists, (folder, *folder.parents)))).free / 2**20
                error.add_note(f"This was raised while {folder} was written, with {left:.1f} MiB left on its disk.")
        raise


def begin_checkpoint(folder: Path) -> None:
    """Make it, or what is there incomplete: with a file of an earlier one it would count as whole at once."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LAST_FILE).unlink(missing_ok=True)


def is_complete(checkpoint: Path) -> bool:
    """
    Whether a checkpoint was written to its end.

    `Trainer` writes `trainer_state.json` last, and ours after every process has written its part. TRL writes the state
    of its adaptive entropy once more after it. A file that is cut off, by a kill or a full disk, is no JSON.
    """
    entropy = checkpoint / ENTROPY_STATE
    try:
        json.loads((checkpoint / LAST_FILE).read_bytes())
        if entropy.exists():
            json.loads(entropy.read_bytes())
    except (OSError, ValueError):
        return False
    return True
