"""Random token batches for tests of the algorithm."""

import numpy as np
import torch

from delta_trl.credit import HiddenStates, LMHead, Tokens


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


def tokens_of(batch, chosen=slice(None)) -> Tokens:
    """Completions of one token each, of a vocabulary of 11: some of the tokens of a `random_batch`."""
    hidden, _, advantages = batch
    head = LMHead(torch.randn(11, hidden.size(1), generator=torch.Generator().manual_seed(0)).to(hidden.dtype))
    ids = torch.arange(len(hidden)) % 11
    log_probs = head.logits(hidden)[0].log_softmax(dim=1).gather(1, ids[:, None])
    ids = ids[chosen, None]
    known = {"log_probs": log_probs[chosen], "hidden": HiddenStates([hidden[chosen]]), "head": head, "seed": (1, 2)}
    return Tokens(ids, torch.ones_like(ids), advantages[chosen], **known)
