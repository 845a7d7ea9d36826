"""Reads the files of a run: what it logged, and the completions that it recorded with their credit."""

import math
import re
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..arguments.errors import UsageError
from ..data.records import COMPLETIONS, FOLDER, recorded_files
from ..files import SETTINGS, STATE, checkpoints, read_json


# With dynamic sampling, TRL's own numbers are those of the chosen groups
PREFERRED = (
    ("reward", "dynamic_sampling/reward_before"),
    ("frac_reward_zero_std", "credit/no_advantage"),  # a rule may have advantages of its own
    ("frac_reward_zero_std", "dynamic_sampling/no_contrast_before"),
)
NOT_ALWAYS_KNOWN = ("log_probs", "entropies", "step_rewards")
HOW_TO_RECORD = "DeltaGRPOTrainer records it with `log_token_credit: 10`, every 10 optimiser steps"


@dataclass
class Completion:
    """
    One recorded completion of T tokens.

    Attributes:
        step (`int`): The optimiser steps that were done when it was sampled.
        reward (`float`, *optional*), advantage (`float`): Of the completion; `None` where not scorable.
        rewards (`list[tuple[str, float | None]]`): By reward function. Two functions may have the same name.
        tokens (`np.ndarray` of shape `(T,)`): The texts of the tokens.
        coefficients, advantages, log_probs, entropies (`np.ndarray` of shape `(T,)`): NaN where not known.
        step_rewards (`np.ndarray` of shape `(T,)`): At the last token of each step that has a reward; NaN elsewhere.
        turns (`np.ndarray` of shape `(T,)`): The number of each token's turn; 0 for a tool's tokens.
    """

    step: int
    reward: float | None
    rewards: list[tuple[str, float | None]]
    advantage: float
    tokens: np.ndarray
    coefficients: np.ndarray
    advantages: np.ndarray
    log_probs: np.ndarray
    entropies: np.ndarray
    step_rewards: np.ndarray
    turns: np.ndarray

    @property
    def has_own_advantages(self) -> bool:
        """Whether tokens have advantages of their own: turned round, or not 0 where the response's is."""
        expected = self.coefficients * self.advantage
        are_alike = np.isclose(self.advantages, expected, atol=1e-4, equal_nan=True)
        return not are_alike.all() or bool((self.coefficients < 0).any())

    def shaded(self, name: str) -> np.ndarray:
        """The values (T,) by which the page shades tokens: `"coefficient"` or `"advantage"`."""
        return self.coefficients if name == "coefficient" else self.advantages

    def mean(self, name: str) -> float:
        """The mean of the known ones of these values; NaN if there is none."""
        return pd.Series(self.shaded(name)).mean()

    def is_like(self, other: "Completion") -> bool:
        """Whether tokens, rewards and advantages are equal, the latter up to rounding."""
        if self.rewards != other.rewards or not np.array_equal(self.tokens, other.tokens):
            return False
        return np.allclose(self.advantages, other.advantages, atol=0.005, equal_nan=True)

    @property
    def side(self) -> int:
        """1 for a winner, -1 for a loser, 0 without contrast."""
        return int(np.sign(self.advantage))


@dataclass
class Group:
    """The recorded completions of one prompt in one rollout batch."""

    step: int
    prompt: str
    completions: list[Completion] = field(default_factory=list)

    def of_side(self, side: int) -> list[Completion]:
        return [c for c in self.completions if c.side == side]

    def distinct(self, side: int) -> list[tuple[Completion, int]]:
        """The completions of a side, those that are alike once, each with how many there are of it."""
        kinds: list[list[Completion]] = []
        for c in self.of_side(side):
            alike = next((others for others in kinds if others[0].is_like(c)), None)
            if alike is None:
                kinds.append([c])
            else:
                alike.append(c)
        return [(others[0], len(others)) for others in kinds]

    @property
    def has_contrast(self) -> bool:
        return {1, -1} <= {c.side for c in self.completions}


@dataclass(eq=False)
class Run:
    """What [`read_run`] found. Without token credit there are no groups."""

    path: Path
    history: list[dict]
    groups: list[Group]
    settings: dict = field(default_factory=dict)  # as training records them

    @property
    def completions(self) -> list[Completion]:
        return completions_of(self.groups)

    @property
    def evaluations(self) -> dict[str, str]:
        """The logged keys of rewards in evaluation, one for each named set, and the names of the sets."""
        set_names = {}
        for entry in self.history:
            for key in entry:
                if match := re.fullmatch("eval_(?:(.+)_)?reward", key):
                    set_names[key] = match[1] or ""
        return set_names

    def logged(self, key: str) -> pd.Series:
        """The finite values of what was logged as `key`, by step."""
        values = {entry["step"]: entry[key] for entry in self.history if key in entry}
        logged = pd.Series(values, dtype=float)
        return logged[np.isfinite(logged)]

    @cached_property
    def shaded(self) -> str:
        """By what the page shades tokens: `"advantage"` if some have advantages of their own, or `"coefficient"`."""
        differ = any(c.has_own_advantages for c in self.completions)
        return "advantage" if differ else "coefficient"

    @cached_property
    def tokens(self) -> pd.DataFrame:
        """
        The recorded tokens of winners and losers, one row each, without tools' tokens. None if they have advantages
        of their own: their coefficients are quotients that say nothing.
        """
        chosen = self.completions if self.shaded == "coefficient" else []
        rows = []
        for c in chosen:
            if c.side:
                row = [c.step, c.side, c.tokens, c.coefficients, c.log_probs]
                rows.append(row)
        of_tokens = ["text", "coefficient", "log_prob"]
        completions = pd.DataFrame(rows, columns=["step", "side", *of_tokens])
        tokens = completions.explode(of_tokens).rename_axis("completion").reset_index()
        tokens["position"] = tokens.groupby("completion").cumcount() + 1
        tokens = tokens.astype({"coefficient": float, "log_prob": float})
        return tokens[tokens.coefficient.notna()].reset_index(drop=True)


def completions_of(groups: list[Group]) -> list[Completion]:
    return list(chain.from_iterable(group.completions for group in groups))


def read_run(path: str | Path) -> Run:
    """
    Read a run directory: `token_credit/`, and `trainer_state.json` there or in a checkpoint. Of these, the furthest of
    the run's last call of `train`: a run that goes on from an earlier checkpoint leaves later ones behind.

    Raises:
        UsageError: If there is no such folder, nothing in it to show, or a record that cannot be read (named).
    """
    path = Path(path)
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder. Expected the `output_dir` of a run.")
    run = Run(path, _read_history(path), [])
    for file in recorded_files(path).values():
        run.groups += _read_groups(file)
    run.settings = read_json(path / SETTINGS)
    if not (run.history or run.groups):
        raise UsageError(
            f"{path}: nothing to show. Looked for {STATE} (here and in checkpoint-*) and {FOLDER}/*.parquet "
            f"({HOW_TO_RECORD})."
        )
    return run


def _read_history(path: Path) -> list[dict]:
    last_call = read_json(path / SETTINGS)
    states = [read_json(path / STATE)]  # until a run goes on: then this file is gone
    for checkpoint in checkpoints(path).values():
        if read_json(checkpoint / SETTINGS).get("call") == last_call.get("call"):
            states.append(read_json(checkpoint / STATE))
    if not any(states) and last_call.get("goes_on_from"):
        states = [read_json(path / last_call["goes_on_from"] / STATE)]
    history = max(states, key=lambda state: state.get("global_step", -1)).get("log_history", [])
    for entry in history:
        for key, better in PREFERRED:
            if better in entry:
                entry[key] = entry[better]
    return history


def _read_groups(file: Path) -> list[Group]:
    try:
        with pq.ParquetFile(file) as parquet:
            rows = parquet.read(COMPLETIONS.names).to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{file}: not a readable record ({str(error).splitlines()[0]}). Move it away.") from error
    groups: dict[int, Group] = {}
    for row in rows.to_dict("records"):
        if math.isnan(row["reward"]):
            row["reward"] = None
        for name in NOT_ALWAYS_KNOWN:
            if row[name] is None:
                row[name] = np.full(len(row["tokens"]), np.nan)
        of_completion = {field.name: row[field.name] for field in fields(Completion)}
        group = groups.setdefault(row["prompt_index"], Group(row["step"], row["prompt"]))
        group.completions.append(Completion(**of_completion))
    return list(groups.values())
