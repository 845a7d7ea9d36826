"""Run directories as training leaves them behind, from a seeded generator."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from delta_trl.report.token_log.records import recorded_files, write_records


WORDS = "the sum of all prime factors is then x = y + 2 so we get \\frac { 1 } and therefore it holds that n".split()
VOCABULARY = [*(f" {word}" for word in WORDS), "\n", ".", ",", " 数", "é", "=y", "scaffold", " forward", "\\boxed{"]


def write_history(path: Path, steps: int, every: int = 1, seed: int = 0) -> None:
    """A trainer state with what TRL logs."""
    rng = np.random.default_rng(seed)
    history = []
    for step in range(every, steps + 1, every):
        done, noise = step / steps, rng.normal(0, 0.03, 4).tolist()
        entry = {
            "step": step,
            "reward": 0.3 + 0.5 * done + noise[0],
            "entropy": 0.6 - 0.3 * done + noise[1],
            "completions/clipped_ratio": max(0, 0.1 + noise[2]),
            "frac_reward_zero_std": 0.2 + 0.4 * done + noise[3],
        }
        history.append(entry)
    path.mkdir(parents=True, exist_ok=True)
    (path / "trainer_state.json").write_text(json.dumps({"global_step": steps, "log_history": history}))


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
        "coefficients": [1.0] * n,
        "log_probs": [-0.5] * n,
        "entropies": [0.7] * n,
    }
    return row | changes


def sampled_group(
    rng, step: int, index: int, size: int, length: int, vocabulary: list[str] = VOCABULARY
) -> list[dict]:
    """A group with winners and losers whose coefficients depend on side, token type and probability."""
    rewards = (np.arange(size) % 8 < 3 + index % 3).astype(float)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    rows = []
    for reward, advantage in zip(rewards.tolist(), advantages.tolist(), strict=True):
        ids = (rng.zipf(1.25, length) - 1) % len(vocabulary)
        log_probs = -rng.gamma(0.35, 1.0, length)
        by_type = 0.2 * np.sin(ids)
        mean = 1.03 + 0.08 * np.sign(advantage) + by_type * np.exp(log_probs)
        coefficients = np.clip(mean + rng.normal(0, 0.04, length), 0.75, 1.35)
        rows.append(
            completion(
                [vocabulary[i] for i in ids],
                step=step,
                reward=reward,
                advantage=advantage,
                prompt_index=index,
                prompt=f"Problem {index} of step {step}: what is {step} + {index}?",
                token_ids=ids.tolist(),
                coefficients=coefficients.tolist(),
                log_probs=log_probs.tolist(),
                entropies=rng.gamma(0.4, 0.8, length).tolist(),
            )
        )
    return rows


def recorded(run_dir: Path) -> list[dict]:
    """The rows that `write_run` wrote."""
    return [row for file in recorded_files(run_dir).values() for row in pq.read_table(file).to_pylist()]


def write_completions(path: Path, rows: list[dict]) -> None:
    """One file for every step."""
    for step in {row["step"] for row in rows}:
        write_records([row for row in rows if row["step"] == step], path, step)


def write_run(
    path: Path, steps: int = 40, recorded_steps: int = 5, groups: int = 2, size: int = 8, length: int = 60,
    seed: int = 0, vocabulary: list[str] = VOCABULARY,
) -> Path:  # fmt: skip
    """A run with token credit."""
    rng = np.random.default_rng(seed)
    write_history(path, steps, seed=seed)
    at = np.linspace(0, steps - 1, recorded_steps).astype(int).tolist()
    rows = [row for s in at for g in range(groups) for row in sampled_group(rng, s, g, size, length, vocabulary)]
    write_completions(path, rows)
    return path
