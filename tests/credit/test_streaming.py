"""Streaming against its formula written out in float64 NumPy, and against the exact coefficients."""

import math

import numpy as np
import pytest
import torch

from delta_trl.credit import OutputRowGradients, StreamingCredit, token_coefficients

from .test_coefficients import explicit_vectors, random_batch


OPTIONS = {"lambda_min": 0.7, "lambda_max": 1.5, "normalize": True, "assignment": "soft"}


def batches(n_batches=3, n=120):
    """Rollout batches of the same task: a common background and a direction that winners and losers differ in."""
    rng = np.random.default_rng(0)
    background, direction = rng.normal(size=(2, 8))
    for _ in range(n_batches):
        advantages = rng.normal(size=n) * (rng.random(n) > 0.2)
        hidden = rng.normal(size=(n, 8)) + background + 0.5 * np.sign(advantages)[:, None] * direction
        yield torch.tensor(hidden), torch.tensor(-rng.exponential(size=n)), torch.tensor(advantages)


def stream(credit, hidden, log_probs, advantages, micro_batches=3) -> torch.Tensor:
    assert credit.begin(advantages)
    parts = torch.arange(len(hidden)).chunk(micro_batches)
    ours = [credit.coefficients(OutputRowGradients(hidden[p], log_probs[p]), advantages[p]) for p in parts]
    all_of_them, kept = credit.finish()
    assert torch.equal(all_of_them, torch.cat(ours))
    assert torch.equal(kept, advantages)
    return all_of_them


def by_hand(v, A, state, K, keep=False):
    """One rollout batch: coefficients and what the next one goes on from."""
    mu, gamma, mean_alpha = state
    delta, alpha = np.zeros(len(A)), np.zeros(len(A))
    for i, tokens in enumerate((A > 0, A < 0)):
        delta[tokens] = ((v[tokens] - mu[1 - i]) ** 2).sum(1) - ((v[tokens] - mu[i]) ** 2).sum(1)
        alpha[tokens] = 1 / (1 + np.exp(-delta[tokens] / gamma[i]))
    share = [(A > 0).mean(), (A < 0).mean()]
    low, width = OPTIONS["lambda_min"], OPTIONS["lambda_max"] - OPTIONS["lambda_min"]
    mean = low + width * sum(f * a for f, a in zip(share, mean_alpha, strict=True))
    w = np.abs(A) * (alpha if K else 1)
    mu = [(w[t] @ v[t]) / w[t].sum() for t in (A > 0, A < 0)]
    gamma = gamma if keep else [np.std(delta[t]) for t in (A > 0, A < 0)]
    return (low + width * alpha) / mean, (mu, gamma, [alpha[t].mean() for t in (A > 0, A < 0)])


@pytest.mark.parametrize("K", [0, 1])
@pytest.mark.parametrize("keep", [False, True], ids=["adaptive", "initial temperatures"])
def test_equals_the_formula(K, keep):
    credit = StreamingCredit(K, **OPTIONS, keep_temperatures=keep)
    state = None
    for hidden, log_probs, advantages in batches(4):
        v, A = explicit_vectors(hidden, log_probs), advantages.numpy()
        if state is None:  # the first one is exact
            statistics = {}
            token_coefficients(
                OutputRowGradients(hidden, log_probs),
                advantages,
                refinement_steps=K,
                **OPTIONS,
                contrast=credit.contrast,
                statistics=statistics,
            )
            gamma = [statistics["temperature_positive"], statistics["temperature_negative"]]
            alpha = np.ones(len(A))
            for _ in range(K + 1):  # centroids as they were, not only their difference
                mu = [(np.abs(A) * alpha)[t] @ v[t] / (np.abs(A) * alpha)[t].sum() for t in (A > 0, A < 0)]
                mean_alpha = []
                for i, t in enumerate((A > 0, A < 0)):
                    delta = ((v[t] - mu[1 - i]) ** 2).sum(1) - ((v[t] - mu[i]) ** 2).sum(1)
                    alpha[t] = 1 / (1 + np.exp(-delta / gamma[i]))
                    mean_alpha.append(alpha[t].mean())
            state = (mu, gamma, mean_alpha)
            continue
        expected, state = by_hand(v, A, state, K, keep)
        ours = stream(credit, hidden, log_probs, advantages)
        np.testing.assert_allclose(ours.numpy(), expected, rtol=2e-5)
        assert ours.mean().item() == pytest.approx(1, abs=0.05)


def test_on_one_batch_again_and_again_it_is_the_refinement():
    """Streaming carries the paper's refinement on: both end in the same fixed point."""
    hidden, log_probs, advantages = next(batches())
    credit = StreamingCredit(1, **OPTIONS, keep_temperatures=False)
    gradients = OutputRowGradients(hidden, log_probs)
    token_coefficients(gradients, advantages, **OPTIONS, contrast=credit.contrast)
    for _ in range(60):
        ours = stream(credit, hidden, log_probs, advantages)
    exact = token_coefficients(gradients, advantages, refinement_steps=60, **OPTIONS)
    torch.testing.assert_close(ours, exact, atol=1e-5, rtol=0)


def test_a_batch_that_is_not_finite_leaves_the_contrast(caplog):
    hidden, log_probs, advantages = next(batches())
    credit = StreamingCredit(1, **OPTIONS, keep_temperatures=False)
    token_coefficients(OutputRowGradients(hidden, log_probs), advantages, **OPTIONS, contrast=credit.contrast)
    before = credit.contrast
    hidden[5] = math.nan
    ours = stream(credit, hidden, log_probs, advantages)
    assert ours.isfinite().all()
    assert ours[5] == 1
    assert credit.contrast is before


@pytest.mark.parametrize("advantages", [torch.ones(6), -torch.ones(6), torch.zeros(6)], ids=["+", "-", "0"])
def test_without_contrast(advantages):
    credit = StreamingCredit(1, **OPTIONS, keep_temperatures=False)
    hidden, log_probs, _ = random_batch(0, n=6)
    token_coefficients(OutputRowGradients(hidden, log_probs), advantages, contrast=credit.contrast)
    assert not credit.contrast.known
    assert not credit.begin(advantages)
