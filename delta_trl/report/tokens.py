"""The recorded tokens of a run as arrays."""

from dataclasses import dataclass

import numpy as np

from .run import Run


def side_means(run: Run) -> dict[tuple[int, int], float]:
    """Mean coefficient of the recorded tokens, by step and side. Sides without known coefficients are left out."""
    values: dict[tuple[int, int], list[np.ndarray]] = {}
    for group in run.groups:
        for c in group.completions:
            if c.side and c.coefficients is not None:
                values.setdefault((group.step, c.side), []).append(c.coefficients[np.isfinite(c.coefficients)])
    joined = {key: np.concatenate(arrays) for key, arrays in values.items()}
    return {key: float(array.mean(dtype=np.float64)) for key, array in joined.items() if len(array)}


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean(dtype=np.float64)) if len(known) else np.nan


def _late(length: int) -> np.ndarray:
    places = np.arange(length) - (length - 1) / 2
    return np.where(places == 0, np.nan, places > 0).astype(np.float32)


@dataclass
class TokenTable:
    """The recorded tokens of winners and losers: arrays of shape (N,), NaN where not known."""

    steps: np.ndarray
    sides: np.ndarray
    positions: np.ndarray
    coefficients: np.ndarray
    relative: np.ndarray  # coefficients less the mean of their side in their rollout batch
    within: np.ndarray  # coefficients less the mean of their completion
    late: np.ndarray  # 1 in the later half of a completion, else 0; NaN for the one in the middle
    probabilities: np.ndarray
    entropies: np.ndarray


def token_table(run: Run) -> TokenTable:
    """All recorded tokens with a contrast; those of a completion with advantage 0 train nothing."""
    means = side_means(run)
    completions = ((group.step, c) for group in run.groups for c in group.completions if run.has_credit)
    rows = [(step, c) for step, c in completions if c.side and len(c.coefficients)]

    def joined(arrays) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.float32), *arrays])

    return TokenTable(
        steps=joined(np.full(len(c.coefficients), step, np.float32) for step, c in rows),
        sides=joined(np.full(len(c.coefficients), c.side, np.float32) for _, c in rows),
        positions=joined(np.arange(1, len(c.coefficients) + 1, dtype=np.float32) for _, c in rows),
        coefficients=joined(c.coefficients for _, c in rows),
        relative=joined(c.coefficients - means.get((step, c.side), np.nan) for step, c in rows),
        within=joined(c.coefficients - _mean(c.coefficients) for _, c in rows),
        late=joined(_late(len(c.coefficients)) for _, c in rows),
        probabilities=np.exp(joined(c.log_probs for _, c in rows)),
        entropies=joined(c.entropies for _, c in rows),
    )
