"""Reads the files of a run: curves, completions, and token credit if it was recorded."""

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..arguments.errors import UsageError
from ..evaluation.sampling import SAMPLING, describe
from ..files import SETTINGS, checkpoints, is_complete
from .token_log import records as token_records


# Numeric columns of TRL's completions files that are not rewards; the last two are DeltaGRPOTrainer's.
NO_REWARDS = ("step", "advantage", "mean_token_coefficient", "trained_advantage")
HOW_TO_RECORD = "DeltaGRPOTrainer records it with `log_token_credit: 10`, every 10 optimiser steps"


@dataclass
class Completion:
    """
    One recorded completion of T tokens. Without token credit, `tokens` has the whole text as one element, and the
    arrays are `None`.

    `coefficients`, `log_probs` and `entropies` are float32 of shape (T,), NaN where not known.
    """

    reward: float | None
    rewards: dict[str, float | None]
    advantage: float
    tokens: Callable[[], list[str]]  # decoded when they are shown
    coefficients: np.ndarray | None = None
    log_probs: np.ndarray | None = None
    entropies: np.ndarray | None = None

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


@dataclass
class TokenTypeTable:
    """Counts and coefficient sums by token type, arrays of shape (V', 2): winners, losers."""

    tokens: list[str]
    counts: np.ndarray
    sums: np.ndarray

    def off_side(self) -> np.ndarray:
        """How far a type's coefficients are from the mean of their side, on average over its tokens; shape (V',)."""
        means = self.sums.sum(axis=0) / self.counts.sum(axis=0).clip(min=1)
        return (self.sums - self.counts * means).sum(axis=1) / self.counts.sum(axis=1).clip(min=1)


@dataclass(eq=False)
class Run:
    """What [`read_run`] found. `has_credit` says whether the groups have coefficients."""

    path: Path
    history: list[dict]
    groups: list[Group]
    token_types: TokenTypeTable | None
    has_credit: bool
    settings: dict | None = None  # as `delta_trl.trainer.settings` records them; older runs have none

    @property
    def evaluations(self) -> dict[str, str]:
        """
        The logged keys of evaluations, one for each named set, and their names: avg@k, as on the terminal and in the
        model card. Runs of TRL's own trainer have the mean reward instead.
        """
        arguments = (self.settings or {}).get("arguments", {})
        k = arguments.get("num_generations_eval") or arguments.get("num_generations", "k")
        for pattern, name in (("eval_(?:(.+)_)?avg_at_k", f"avg@{k}"), ("eval_(?:(.+)_)?reward", "mean reward")):
            found = [match for key in _keys(self.history) if (match := re.fullmatch(pattern, key))]
            if found:
                return {match[0]: f"{name} on {match[1]}" if match[1] else name for match in found}
        return {}

    def sampling(self) -> str | None:
        """How completions were sampled, as in [`~evaluation.sampling.describe`]; `None` if that is not recorded."""
        arguments = (self.settings or {}).get("arguments", {})
        known = arguments | (arguments.get("generation_kwargs") or {})
        return describe(**{name: known.get(name) for name in SAMPLING}) if "temperature" in known else None

    def logged(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and finite values of what was logged as `key`."""
        points = {entry["step"]: entry[key] for entry in self.history if isinstance(entry.get(key), (int, float))}
        points = {step: value for step, value in points.items() if math.isfinite(value)}
        return np.array(list(points), dtype=np.int32), np.array(list(points.values()), dtype=np.float64)


def read_run(path: str | Path) -> Run:
    """
    Read a run directory: the `trainer_state.json` written last (its own or a checkpoint's), `token_credit/`, or TRL's
    `completions/` where there is none; and the settings.

    Raises:
        UsageError: If there is no such folder, nothing in it to show, or a file that cannot be read (named).
    """
    path = Path(path)
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder. Expected the `output_dir` of a run.")
    history, settings = _read_history(path), _read_settings(path / SETTINGS)
    credit = path / token_records.FOLDER
    files = sorted(credit.glob(re.sub(r"\{.*\}", "*", token_records.COMPLETIONS_FILE)))
    has_credit = bool(files)
    if has_credit:
        groups = [group for file in files for group in _read_credit(file)]
    else:
        rewards = [name[1] for key in _keys(history) if (name := re.fullmatch("rewards/(.*)/mean", key))]
        files = sorted((path / "completions").glob("completions_*.parquet"))
        groups = [group for file in files for group in _read_completions(file, rewards, settings or {})]
    types_file = credit / token_records.TOKEN_TYPES_FILE
    token_types = _read_token_types(types_file) if types_file.is_file() else None
    if not (history or groups or token_types):
        raise UsageError(
            f"{path}: nothing to show. Looked for trainer_state.json (here and in checkpoint-*), "
            f"token_credit/*.parquet ({HOW_TO_RECORD}) and completions/*.parquet (`log_completions`)."
        )
    return Run(path, history, groups, token_types, has_credit, settings)


def training_reward(logs: dict) -> float | None:
    """The logged mean reward of the policy on the data. With dynamic sampling, TRL's own is that of chosen groups."""
    return logs.get("dynamic_sampling/reward_before", logs.get("reward"))


def _keys(history: list[dict]) -> list[str]:
    return list(dict.fromkeys(key for entry in history for key in entry))


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


def _read_settings(file: Path) -> dict | None:
    if not file.is_file():
        return None
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{file}: not a record of settings ({error}). Move it away.") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{file}: not a record of settings, got {type(settings).__name__}. Move it away.")
    return settings


@contextmanager
def _opened(file: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file; errors while it is open name it."""
    try:
        with pq.ParquetFile(file) as parquet:
            yield parquet
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{file}: not a readable Parquet file, perhaps cut off ({reason}). Move it away.") from error


def _read(file: Path, schema: pa.Schema) -> Iterator[dict[str, pa.Array]]:
    """The record batches of a file, after a check that it has the columns of `schema`."""
    with _opened(file) as parquet:
        found = {column.name: column.type for column in parquet.schema_arrow}
        for column in schema:
            if found.get(column.name) != column.type:
                raise UsageError(
                    f"{file}: expected a column {column.name!r} of type {column.type}, got "
                    f"{found.get(column.name, 'none')}. This version of delta_trl did not write it: move it away."
                )
        for batch in parquet.iter_batches(columns=schema.names):
            yield dict(zip(batch.schema.names, batch.columns, strict=True))


def _texts(column: pa.Array) -> list[str]:
    """Strings of a column; Parquet does not check that they are UTF-8."""
    return [(b or b"").decode("utf-8", "replace") for b in column.cast(pa.binary()).to_pylist()]


def _floats(column: pa.Array) -> list[np.ndarray | None]:
    values = column.values.to_numpy(zero_copy_only=False).astype(np.float32)
    offsets = column.offsets.to_numpy()
    known = column.is_valid().to_pylist()
    return [values[a:b] if ok else None for a, b, ok in zip(offsets, offsets[1:], known, strict=False)]


def _read_credit(file: Path) -> list[Group]:
    groups: dict[tuple[int, int], Group] = {}
    for batch in _read(file, token_records.COMPLETIONS):
        names = ("step", "prompt_index", "reward", "rewards", "advantage")
        scalars = {name: batch[name].to_pylist() for name in names}
        prompts = _texts(batch["prompt"])
        tokens = batch["tokens"]
        arrays = {name: _floats(batch[name]) for name in ("coefficients", "log_probs", "entropies")}
        for i in range(len(prompts)):
            row = {name: values[i] for name, values in scalars.items()}
            length = len(tokens[i]) if tokens[i].is_valid else 0
            numbers = {name: values[i] for name, values in arrays.items()}
            for name, array in numbers.items():
                if array is not None and len(array) != length:
                    raise UsageError(f"{file}: row {i} has {length} tokens but {len(array)} {name}.")
            group = groups.setdefault((row["step"], row["prompt_index"]), Group(row["step"] or 0, prompts[i]))
            group.completions.append(
                Completion(
                    reward=_finite(row["reward"]),
                    rewards={name: _finite(value) for name, value in row["rewards"] or ()},
                    advantage=_finite(row["advantage"]) or 0.0,
                    tokens=lambda tokens=tokens, i=i: _texts(tokens[i].values) if tokens[i].is_valid else [],
                    **{name: np.full(length, np.nan, np.float32) if a is None else a for name, a in numbers.items()},
                )
            )
    return list(groups.values())


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None


def _read_token_types(file: Path) -> TokenTypeTable:
    columns = [[], [], []]
    for batch in _read(file, token_records.TOKEN_TYPES):
        columns[0] += _texts(batch["token"])
        for column, name in ((columns[1], "count"), (columns[2], "coefficient_sum")):
            pair = [batch[f"{name}_{side}"].to_numpy(zero_copy_only=False) for side in ("positive", "negative")]
            column.append(np.nan_to_num(np.stack(pair, axis=1).astype(np.float64)))
    empty = np.zeros((0, 2))
    return TokenTypeTable(columns[0], np.concatenate([empty, *columns[1]]), np.concatenate([empty, *columns[2]]))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _is_text(kind: pa.DataType) -> bool:
    """A string, or a list of messages."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    is_messages = is_list and pa.types.is_struct(kind.value_type)
    return is_messages or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _read_completions(file: Path, logged_rewards: list[str], settings: dict) -> list[Group]:
    """The groups of one of TRL's completions files: consecutive rows with one prompt, as many as were generated."""
    weights = settings.get("rewards") or {}
    size = (settings.get("arguments") or {}).get("num_generations") or math.inf
    columns = {"step": pa.types.is_integer, "prompt": _is_text, "completion": _is_text, "advantage": _is_number}
    with _opened(file) as parquet:
        found = {column.name: column.type for column in parquet.schema_arrow}
        if not parquet.metadata.num_rows:  # its columns have no types either
            return []
        for name, fits in columns.items():
            if name not in found:
                raise UsageError(f"{file}: no column {name!r}, so not one of TRL's files. Move it away.")
            if not fits(found[name]):
                raise UsageError(
                    f"{file}: the column {name!r} has type {found[name]}, so not one of TRL's files. Move it away."
                )
        numbers = [name for name, kind in found.items() if _is_number(kind) and name not in NO_REWARDS]
        # Reward functions log numbers as columns, too. Before the first checkpoint, nothing tells them from rewards.
        reward_names = [name for name in numbers if name in logged_rewards] or numbers
        rows = parquet.read([*columns, *reward_names]).to_pylist()
    groups: list[Group] = []
    for row in rows:
        prompt, text = _as_text(row["prompt"]), _as_text(row["completion"])
        if not groups or groups[-1].prompt != prompt or len(groups[-1].completions) == size:
            groups.append(Group(row["step"] or 0, prompt))
        rewards = {name: _finite(row.get(name)) for name in reward_names}
        scored = [weights.get(name, 1) * value for name, value in rewards.items() if value is not None]
        groups[-1].completions.append(
            Completion(
                reward=sum(scored) if scored else None,
                rewards=rewards,
                advantage=_finite(row["advantage"]) or 0.0,
                tokens=lambda text=text: [text],
            )
        )
    return groups


def _as_text(value) -> str:
    """A prompt or completion as text: it is a string, or a list of messages."""
    if isinstance(value, list):
        return "\n".join(f"{message.get('role')}: {message.get('content')}" for message in value if message)
    return str(value)
