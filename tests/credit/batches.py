"""Random token batches for tests of the algorithm."""

import numpy as np
import torch

from delta_trl.credit import HiddenStates, LMHead, Tokens


def random_batch(seed, n=200, d=16, dtype=torch.float64, zero_share=0.2):
    """Hidden states with a common background, log-probabilities and group-like advantages of n tokens."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(n, d))
    common = rng.normal(size=d)
    log_probs = -rng.exponential(size=n)
    advantages = rng.normal(size=n)
    advantages[rng.random(n) < zero_share] = 0.0
    hidden = torch.tensor(own + 2 * common).to(dtype)
    return hidden, torch.tensor(log_probs), torch.tensor(advantages)


def explicit_vectors(hidden, log_probs):
    p = np.exp(log_probs.double().numpy())
    return (1 - p)[:, None] * hidden.double().numpy()


def tokens_of(batch, chosen=slice(None)) -> Tokens:
    """Completions of one token each, of a vocabulary of 11: some of the tokens of a `random_batch`."""
    hidden, _, advantages = batch
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(11, hidden.size(1), generator=generator)
    head = LMHead(weight.to(hidden.dtype))
    ids = torch.arange(len(hidden))[:, None] % 11
    logits, _ = head.logits(hidden)
    log_probs = logits.log_softmax(dim=1).gather(1, ids)
    mask = torch.ones_like(ids)
    return Tokens(
        ids[chosen],
        mask[chosen],
        advantages[chosen],
        log_probs=log_probs[chosen],
        hidden=HiddenStates([hidden[chosen]]),
        head=head,
        seed=(1, 2),
    )
