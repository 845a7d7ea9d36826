"""The recorded tokens of a run as arrays."""

from dataclasses import dataclass

import numpy as np

from .run import Completion, Run


def side_means(run: Run) -> dict[tuple[int, int], float]:
    """Mean coefficient of the recorded tokens, by step and side. Sides without known coefficients are left out."""
    values: dict[tuple[int, int], list[np.ndarray]] = {}
    for group in run.groups:
        for c in group.completions:
            if c.side:
                values.setdefault((group.step, c.side), []).append(c.coefficients)
    return {key: mean for key, arrays in values.items() if np.isfinite(mean := _mean(np.concatenate(arrays)))}


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean(dtype=np.float64)) if len(known) else np.nan


@dataclass
class TokenTable:
    """The recorded tokens of winners and losers: arrays of shape (N,), NaN where not known."""

    completions: list[Completion]  # C of them, with a contrast
    rows: np.ndarray  # number of the token's completion, 0 to C - 1
    steps: np.ndarray
    sides: np.ndarray  # 1 or -1
    ids: np.ndarray
    positions: np.ndarray  # in the completion, from 1
    coefficients: np.ndarray
    within: np.ndarray  # coefficients less the mean of their completion
    late: np.ndarray  # whether in the later half of the completion
    probabilities: np.ndarray


def token_table(run: Run) -> TokenTable:
    """All recorded tokens with a contrast; those of a completion with advantage 0 train nothing."""
    found = [(group.step, c) for group in run.groups for c in group.completions if c.side and len(c.coefficients)]
    lengths = [len(c.coefficients) for _, c in found]

    def joined(arrays) -> np.ndarray:
        return np.concatenate([np.zeros(0), *arrays])

    coefficients = joined(c.coefficients for _, c in found)
    return TokenTable(
        completions=[c for _, c in found],
        rows=np.repeat(np.arange(len(found)), lengths),
        steps=np.repeat(np.array([step for step, _ in found], dtype=int), lengths),
        sides=np.repeat(np.array([c.side for _, c in found], dtype=int), lengths),
        ids=joined(c.token_ids for _, c in found).astype(int),
        positions=joined(np.arange(1, n + 1) for n in lengths),
        coefficients=coefficients,
        within=coefficients - np.repeat([_mean(c.coefficients) for _, c in found], lengths),
        late=joined(np.arange(n) >= n / 2 for n in lengths).astype(bool),
        probabilities=np.exp(joined(c.log_probs for _, c in found)),
    )
