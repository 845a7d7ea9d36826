"""Run directories as training leaves them behind, from a seeded generator."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from delta_trl.report.token_log.records import write_records


VOCABULARY = [" the", " sum", " of", " then", " x", " =", "\n", ".", " 数", "é"]


def write_history(path: Path, steps: Sequence[int], **logged: list[float]) -> None:
    """A trainer state with what was logged at some steps, by default a reward that rises."""
    logged = logged or {"reward": np.linspace(0.3, 0.8, len(steps)).tolist()}
    history = [{"step": step, **{name: values[i] for name, values in logged.items()}} for i, step in enumerate(steps)]
    path.mkdir(parents=True, exist_ok=True)
    (path / "trainer_state.json").write_text(json.dumps({"log_history": history}))


def completion(tokens: list[str], step: int = 0, reward: float = 1.0, advantage: float = 1.0, **changes) -> dict:
    """A row of the recorded completions."""
    n = len(tokens)
    row = {
        "step": step,
        "prompt_index": 0,
        "prompt": "a prompt",
        "completion": "".join(tokens),
        "reward": reward,
        "rewards": [("math_reward", reward)],
        "advantage": advantage,
        "token_ids": list(range(n)),
        "tokens": tokens,
        "turns": [1] * n,
        "coefficients": [1.0] * n,
        "log_probs": [-0.5] * n,
        "entropies": [0.7] * n,
    }
    row |= changes
    return {"advantages": [c and row["advantage"] * c for c in row["coefficients"]], **row}


def sampled_group(rng, step: int, index: int, size: int, length: int) -> list[dict]:
    """A group with winners and losers."""
    rewards = (np.arange(size) % 8 < 3 + index % 3).astype(float)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    return [
        completion(
            rng.choice(VOCABULARY, length).tolist(),
            step=step,
            reward=reward,
            advantage=advantage,
            prompt_index=index,
            prompt=f"Problem {index} of step {step}: what is {step} + {index}?",
            coefficients=rng.normal(1.03 + 0.08 * np.sign(advantage), 0.1, length).tolist(),
            log_probs=(-rng.gamma(0.35, 1.0, length)).tolist(),
            entropies=rng.gamma(0.4, 0.8, length).tolist(),
        )
        for reward, advantage in zip(rewards.tolist(), advantages.tolist(), strict=True)
    ]


def write_completions(path: Path, rows: list[dict]) -> None:
    """One file for every step."""
    for step in {row["step"] for row in rows}:
        write_records([row for row in rows if row["step"] == step], path, step)


def write_run(path: Path, recorded_steps: int) -> Path:
    """A run of 40 steps with token credit of two groups of 8."""
    rng = np.random.default_rng(0)
    write_history(path, range(1, 41))
    at = np.linspace(0, 39, recorded_steps).astype(int).tolist()
    write_completions(path, [row for step in at for i in range(2) for row in sampled_group(rng, step, i, 8, 60)])
    return path
