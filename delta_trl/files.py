"""Atomic writes, which leave no partial file even if the process is killed, and complete checkpoints."""

import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from transformers.utils import flatten_dict


LAST_FILE, ENTROPY_STATE = "trainer_state.json", "entropy_ctrl_state.json"  # of a checkpoint
SETTINGS = "training_settings.json"  # says what a run was started with, not how far it came
NO_OPTIONS = (({}, None), (None, {}))  # no difference between two settings


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
    old = flatten_dict(before)
    new = flatten_dict(now)
    found = {}
    for key in {**old, **new}:
        values = (old.get(key), new.get(key))
        if values[0] != values[1] and values not in NO_OPTIONS:
            found[key] = values
    return found


def in_words(differences: dict[str, tuple[Any, Any]]) -> str:
    return "; ".join(f"{key} was {before!r} and is {now!r}" for key, (before, now) in differences.items())


def checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints of a run by their optimiser steps, in order; complete or not."""
    found = {}
    for path in folder.glob("checkpoint-*"):
        step = path.name.removeprefix("checkpoint-")
        if step.isdecimal():
            found[int(step)] = path
    return dict(sorted(found.items()))


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
