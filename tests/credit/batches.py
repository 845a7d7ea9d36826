"""Random token batches for tests of the algorithm."""

import numpy as np
import torch


def random_batch(seed, n=200, d=16, dtype=torch.float64, zero_share=0.2):
    """Hidden states with a common background, log-probabilities and group-like advantages of n tokens."""
    rng = np.random.default_rng(seed)
    hidden = torch.tensor(rng.normal(size=(n, d)) + 2 * rng.normal(size=d)).to(dtype)
    log_probs = torch.tensor(-rng.exponential(size=n))
    advantages = rng.normal(size=n)
    advantages[rng.random(n) < zero_share] = 0.0
    return hidden, log_probs, torch.tensor(advantages)


def explicit_vectors(hidden, log_probs):
    return (1 - np.exp(log_probs.double().numpy()))[:, None] * hidden.double().numpy()
