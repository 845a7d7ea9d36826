"""Completions with rewards from a file of JSON lines, checked without torch. Every mistake names its line."""

import json
import math
import reprlib
import struct
from pathlib import Path
from typing import Any

from ..arguments.errors import UsageError


FIELDS = "prompt, completion and reward"


def read_completions(path: Path) -> list[dict]:
    """
    Read JSON lines.

    Args:
        path (`Path`): The file.

    Returns:
        `list[dict]`: `prompt` (a string or messages), `completion`, `reward` (a float or `None`), `line` (from 1) and
        `group` (which prompt it is, from 0) of every line, sorted by group.

    Raises:
        UsageError: If the file cannot be read, a line is malformed, or no prompt's completions differ in reward.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"--data {path}: cannot be read ({error.strerror}).") from error
    rows: list[dict] = []
    groups: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = _read_line(line)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}.") from error
        group = groups.setdefault(json.dumps(row["prompt"], sort_keys=True), len(groups))
        rows.append({**row, "line": number, "group": group})
    if not rows:
        raise UsageError(f"{path} has no lines: expected objects with {FIELDS}, one a line.")
    rewards: dict[int, set] = {row["group"]: set() for row in rows}
    for row in rows:
        if row["reward"] is not None:
            rewards[row["group"]].add(row["reward"])
    if not any(rewards.values()):
        raise UsageError(f"{path}: all rewards are null, so there is nothing to contrast.")
    if not any(len(different) > 1 for different in rewards.values()):
        raise UsageError(
            f"{path}: no prompt has completions with different rewards, so there is nothing to contrast. Completions "
            "of the same prompt are a group."
        )
    return sorted(rows, key=lambda row: row["group"])


def _read_line(line: bytes) -> dict:
    """The three fields of a line. Raises `ValueError` that says what is wrong with it."""
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON in UTF-8 ({error})") from error
    return check_completion(row)


def check_completion(row: Any) -> dict:
    """The three fields of a row. Raises `ValueError` that says what is wrong with it."""
    if not isinstance(row, dict):
        raise ValueError(f"expected an object with {FIELDS}, got {reprlib.repr(row)}")
    missing = [name for name in ("prompt", "completion", "reward") if name not in row]
    if missing:
        raise ValueError(f"expected an object with {FIELDS} (null where it is not known), {missing[0]!r} is missing")
    prompt, completion = row["prompt"], row["completion"]
    if not (isinstance(prompt, str) or _are_messages(prompt)):
        raise ValueError(f"the prompt must be a string or a list of messages with a role, got {reprlib.repr(prompt)}")
    if not isinstance(completion, str):
        raise ValueError(f"the completion must be a string, got {reprlib.repr(completion)}")
    if not completion:
        raise ValueError("the completion is empty, it has no token")
    for name, value in (("prompt", prompt), ("completion", completion)):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise ValueError(f"the {name} cannot be tokenised: {half} is half of a surrogate pair") from error
    return {"prompt": prompt, "completion": completion, "reward": _read_reward(row["reward"])}


def _are_messages(prompt: Any) -> bool:
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in prompt)
    )


def _read_reward(reward: Any) -> float | None:
    """The reward as the float32 that is recorded; integers and booleans are converted, too."""
    if reward is None:
        return None
    try:
        (value,) = struct.unpack("f", struct.pack("f", reward))
    except (struct.error, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"the reward must be a finite number (of float32) or null, got {reprlib.repr(reward)}")
    return value
