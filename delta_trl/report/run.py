"""Reads the files of a run: what it logged, its settings, and the completions that it recorded with their credit."""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..arguments.errors import UsageError
from ..files import SETTINGS, checkpoints, is_complete
from .token_log.records import COMPLETIONS, COMPLETIONS_FILE, FOLDER


HOW_TO_RECORD = "DeltaGRPOTrainer records it with `log_token_credit: 10`, every 10 optimiser steps"


@dataclass
class Completion:
    """
    One recorded completion of T tokens.

    `token_ids` is int32, `coefficients`, `log_probs` and `entropies` are float32, NaN where not known; all of shape
    (T,). `tokens()` decodes the texts of the tokens, T strings.
    """

    reward: float | None
    rewards: dict[str, float | None]
    advantage: float
    tokens: Callable[[], list[str]]
    token_ids: np.ndarray
    coefficients: np.ndarray
    log_probs: np.ndarray
    entropies: np.ndarray

    @property
    def side(self) -> int:
        """1 for a winner, -1 for a loser, 0 without contrast (or without a usable advantage)."""
        return int(np.sign(np.nan_to_num(self.advantage)))


@dataclass
class Group:
    """The recorded completions of one prompt in one rollout batch."""

    step: int
    prompt: str
    completions: list[Completion] = field(default_factory=list)

    def of_side(self, side: int) -> list[Completion]:
        return [c for c in self.completions if c.side == side]


@dataclass(eq=False)
class Run:
    """What [`read_run`] found. Without token credit there are no groups."""

    path: Path
    history: list[dict]
    groups: list[Group]
    settings: dict  # as `delta_trl.trainer.settings` records them; empty if there is no record

    @property
    def evaluations(self) -> dict[str, str]:
        """The logged keys of rewards in evaluation, one for each named set, and the names of the sets."""
        keys = {key: re.fullmatch("eval_(?:(.+)_)?reward", key) for entry in self.history for key in entry}
        return {key: match[1] or "" for key, match in keys.items() if match}

    def logged(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and finite values of what was logged as `key`."""
        points = {entry["step"]: entry[key] for entry in self.history if isinstance(entry.get(key), (int, float))}
        points = {step: value for step, value in points.items() if math.isfinite(value)}
        return np.array(list(points), dtype=np.int32), np.array(list(points.values()), dtype=np.float64)


def read_run(path: str | Path) -> Run:
    """
    Read a run directory: the `trainer_state.json` written last (its own or a checkpoint's), `token_credit/`, and the
    record of settings.

    Raises:
        UsageError: If there is no such folder, nothing in it to show, or a file that cannot be read (named).
    """
    path = Path(path)
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder. Expected the `output_dir` of a run.")
    history = _read_history(path)
    files = sorted((path / FOLDER).glob(re.sub(r"\{.*\}", "*", COMPLETIONS_FILE)))
    groups = [group for file in files for group in _read_groups(file)]
    if not (history or groups):
        raise UsageError(
            f"{path}: nothing to show. Looked for trainer_state.json (here and in checkpoint-*) and "
            f"{FOLDER}/*.parquet ({HOW_TO_RECORD})."
        )
    return Run(path, history, groups, _read_settings(path / SETTINGS))


def training_reward(logs: dict) -> float | None:
    """The logged mean reward of the policy on the data. With dynamic sampling, TRL's own is that of chosen groups."""
    return logs.get("dynamic_sampling/reward_before", logs.get("reward"))


def _read_history(path: Path) -> list[dict]:
    files = [folder / "trainer_state.json" for folder in (path, *reversed(checkpoints(path).values()))]
    files = [file for file in files if file.is_file()]
    files = [file for file in files if is_complete(file.parent)] or files[:1]  # one may be cut off by a kill
    # The folder's own file is written at the end of training; until then it is from an earlier run.
    files.sort(key=lambda file: -file.stat().st_mtime_ns)
    newest, *others = [_read_state(file) for file in files] or [[]]
    # a copy of the folder may have other times: the newest may be a part of another file's history
    return max([newest, *(other for other in others if other[: len(newest)] == newest)], key=len)


def _read_state(file: Path) -> list[dict]:
    try:
        history = json.loads(file.read_text(encoding="utf-8"))["log_history"]
        entries = [entry for entry in history if isinstance(entry["step"], int)]
        return [{**entry, "reward": training_reward(entry)} if "reward" in entry else entry for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: not a trainer state ({type(error).__name__}: {error}).") from error


def _read_settings(file: Path) -> dict:
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{file}: not a record of settings ({error}). Move it away.") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{file}: not a record of settings, got {type(settings).__name__}. Move it away.")
    return settings


def _read_batches(file: Path) -> Iterator[dict[str, pa.Array]]:
    """The record batches of a file, after a check of its columns. Errors while it is read name it."""
    try:
        with pq.ParquetFile(file) as parquet:
            found = {column.name: column.type for column in parquet.schema_arrow}
            for column in COMPLETIONS:
                if found.get(column.name) != column.type:
                    raise UsageError(
                        f"{file}: expected a column {column.name!r} of type {column.type}, got "
                        f"{found.get(column.name, 'none')}. This version of delta_trl did not write it: move it away."
                    )
            for batch in parquet.iter_batches(columns=COMPLETIONS.names):
                yield dict(zip(batch.schema.names, batch.columns, strict=True))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{file}: not a readable Parquet file, perhaps cut off ({reason}). Move it away.") from error


def _read_groups(file: Path) -> list[Group]:
    groups: dict[tuple[int, int], Group] = {}
    for batch in _read_batches(file):
        names = ("step", "prompt_index", "reward", "rewards", "advantage")
        scalars = {name: batch[name].to_pylist() for name in names}
        arrays = {name: _arrays(batch[name]) for name in ("token_ids", "coefficients", "log_probs", "entropies")}
        prompts, tokens = _texts(batch["prompt"]), batch["tokens"]
        for i in range(len(prompts)):
            row = {name: values[i] for name, values in scalars.items()}
            length = len(tokens[i]) if tokens[i].is_valid else 0
            numbers = {name: values[i] for name, values in arrays.items()}
            for name, array in numbers.items():
                if array is not None and len(array) != length:
                    raise UsageError(f"{file}: row {i} has {length} tokens but {len(array)} {name}.")
            ids = numbers.pop("token_ids")
            group = groups.setdefault((row["step"], row["prompt_index"]), Group(row["step"] or 0, prompts[i]))
            group.completions.append(
                Completion(
                    reward=_finite(row["reward"]),
                    rewards={name: _finite(value) for name, value in row["rewards"] or ()},
                    advantage=_finite(row["advantage"]) or 0.0,
                    tokens=lambda tokens=tokens, i=i: _texts(tokens[i].values) if tokens[i].is_valid else [],
                    token_ids=np.nan_to_num(np.zeros(length) if ids is None else ids).astype(np.int32),
                    **{name: np.full(length, np.nan, np.float32) if a is None else a for name, a in numbers.items()},
                )
            )
    return list(groups.values())


def _texts(column: pa.Array) -> list[str]:
    """Strings of a column; Parquet does not check that they are UTF-8."""
    return [(b or b"").decode("utf-8", "replace") for b in column.cast(pa.binary()).to_pylist()]


def _arrays(column: pa.Array) -> list[np.ndarray | None]:
    """A column of lists of numbers, each as an array of floats, NaN where null."""
    values = column.values.to_numpy(zero_copy_only=False)
    values = values.astype(np.float64 if pa.types.is_integer(column.type.value_type) else np.float32)
    offsets = column.offsets.to_numpy()
    known = column.is_valid().to_pylist()
    return [values[a:b] if ok else None for a, b, ok in zip(offsets, offsets[1:], known, strict=False)]


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None
