"""Files that are there as a whole or not at all, also if the process is killed; errors that say where they arose."""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


LAST_FILE, ENTROPY_STATE = "trainer_state.json", "entropy_ctrl_state.json"  # of a checkpoint


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
