"""Run directories as training leaves them behind."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from delta_trl.data.records import write_records


TEXTS = [" the", " x", "\n", ".", " 数", "é"]


def write_history(path: Path, steps: Sequence[int], **logged: list[float]) -> Path:
    """A trainer state with what was logged at some steps, NaN where it was not, and the last entry of a run."""
    history = pd.DataFrame({"step": steps, **logged}).to_dict("records")
    last = {"step": max(steps), "train_runtime": 9.0}
    path.mkdir(parents=True, exist_ok=True)
    state = {"global_step": max(steps), "log_history": [*history, last]}
    (path / "trainer_state.json").write_text(json.dumps(state))
    return path


def completion(tokens: list[str], advantage: float = 1.0, **changes) -> dict:
    """A row of the recorded completions, with what the report reads."""
    n = len(tokens)
    row = {
        "step": 0,
        "prompt_index": 0,
        "prompt": "a prompt",
        "reward": 1.0,
        "rewards": [("math_reward", 1.0)],
        "advantage": advantage,
        "tokens": tokens,
        "turns": [1] * n,
        "coefficients": [1.0] * n,
        "log_probs": [-0.5] * n,
        "entropies": [0.7] * n,
    }
    row |= changes
    return {"advantages": [c and advantage * c for c in row["coefficients"]], **row}


def write_completions(path: Path, rows: list[dict]) -> None:
    """One file for every step."""
    for step in {row["step"] for row in rows}:
        write_records([row for row in rows if row["step"] == step], path, step)


def write_run(path: Path) -> Path:
    """A run of 40 steps. At two of them, two groups of winners and losers with every shade."""
    write_history(path, range(40), reward=np.linspace(0.3, 0.8, 40))
    shades = np.linspace(0.7, 1.3, 60).tolist()
    rows = []
    for step in (0, 39):
        for index in (0, 1):
            place = {"step": step, "prompt_index": index, "prompt": f"Problem {index}"}
            for advantage in (1.0, -1.0):
                rows.append(completion(TEXTS * 10, advantage, coefficients=shades, **place))
    write_completions(path, rows)
    return path
