"""Atomic writes, which leave no partial file even if the process is killed, and complete checkpoints."""

import json
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any


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


def checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints of a run by their optimiser steps, in order; complete or not."""
    found = {path: re.fullmatch(r"checkpoint-(\d+)", path.name) for path in folder.glob("checkpoint-*")}
    return dict(sorted((int(step[1]), path) for path, step in found.items() if step))


def begin_checkpoint(folder: Path) -> None:
    """Make an empty folder. What an earlier checkpoint left there could be taken for a part of this one."""
    (folder / LAST_FILE).unlink(missing_ok=True)  # first: if this is interrupted, the folder is no complete checkpoint
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


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
