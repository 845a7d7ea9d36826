"""Completions with rewards from a file of JSON lines, checked without torch. Every mistake names its line."""

import json
import math
import reprlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..arguments.errors import UsageError
from .columns import is_prompt


def read_completions(path: Path) -> list[dict]:
    """
    Read JSON lines.

    Args:
        path (`Path`): The file.

    Returns:
        `list[dict]`: `prompt` (a string or messages), `completion`, `reward` (a float or `None`), `token_ids` and
        `turns` (`None` if they are not given), `line` (from 1) and `group` (which prompt it is, from 0) of every line,
        sorted by group.

    Raises:
        UsageError: If the file cannot be read, a line is malformed, or no prompt's completions differ in reward.
    """
    rows: list[dict] = []
    groups: dict[str, tuple[int, set]] = {}  # number and rewards of each prompt
    for number, row in read_lines(path, lambda row: check_completion(row) | check_tokens(row)):
        prompt = json.dumps(row["prompt"], sort_keys=True)
        group, rewards = groups.setdefault(prompt, (len(groups), set()))
        rewards.add(row["reward"])
        rows.append({**row, "line": number, "group": group})
    if not any(len(rewards - {None}) > 1 for _, rewards in groups.values()):
        raise UsageError(
            f"{path}: no prompt has completions with different rewards, so there is nothing to contrast. Completions "
            "of the same prompt are a group."
        )
    return sorted(rows, key=lambda row: row["group"])


def read_lines(path: Path, read: Callable[[Any], Any]) -> Iterator[tuple[int, Any]]:
    """
    Numbers, from 1, of the lines of a file of JSON, and what `read` makes of them. Raises `UsageError` for a file that
    cannot be read, and for a line that is not JSON or for which `read` raises `ValueError`.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from error
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                yield number, read(json.loads(line))
        except (ValueError, OverflowError, RecursionError) as error:
            reason = str(error)
            if isinstance(error, json.JSONDecodeError):  # in its own words, the line is 1
                reason = f"not JSON, {error.msg} at character {error.pos + 1}"
            raise UsageError(f"{path}, line {number}: {reason}.") from error


def check_completion(row: Any) -> dict:
    """The three fields of a row. Raises `ValueError` if they are not what is expected."""
    match row:
        case {"completion": ""}:
            raise ValueError("empty completion, which has no tokens to credit. Leave the line out")
        case {"prompt": prompt, "completion": str(text), "reward": None | int() | float() as reward}:
            if is_prompt(prompt) and math.isfinite(reward or 0):
                reward = None if reward is None else float(reward)
                return {"prompt": prompt, "completion": text, "reward": reward}
    raise ValueError(
        "expected {prompt: a text or messages with a role, completion: a text, reward: a finite number or null}, "
        f"got {reprlib.repr(row)}"
    )


def check_tokens(row: dict) -> dict:
    """The `token_ids` and `turns` of a row. Raises `ValueError` if they do not fit each other."""
    ids = row.get("token_ids")
    turns = row.get("turns")
    match ids, turns:
        case None, None:
            pass
        case list(), list() if len(ids) == len(turns) and {*map(type, ids + turns)} == {int}:
            pass
        case _:
            raise ValueError("token_ids and turns must be lists of whole numbers of the same length")
    return {"token_ids": ids, "turns": turns}
