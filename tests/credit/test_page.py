"""The algorithm as docs/token_credit.md states it: its six steps, transcribed in float64, against the code."""

import numpy as np
import pytest

from delta_trl.credit import OutputRowGradients, token_coefficients

from .batches import explicit_vectors, random_batch


def coefficients_by_the_page(v, A, K, lambda_min=0.8, lambda_max=1.2):
    """λ̄ (N,) from vectors `v` (N, d) and advantages `A` (N,). The numbers are those of the page's steps."""
    plus, minus = A > 0, A < 0
    alpha, before = np.ones(len(A)), None
    for _ in range(K + 1):
        mu_plus, mu_minus = (  # 1
            (np.abs(A) * alpha * side) @ v / (np.abs(A) * alpha * side).sum() for side in (plus, minus)
        )
        closer_to_plus = ((v - mu_minus) ** 2).sum(axis=1) - ((v - mu_plus) ** 2).sum(axis=1)
        margins = np.where(plus, closer_to_plus, -closer_to_plus)  # 2
        measured = margins if before is None else before  # 3: of the previous pass
        temperatures = [np.sqrt(max(measured[side].var(), 1e-8)) for side in (plus, minus)]
        alpha = 1 / (1 + np.exp(-margins / np.where(plus, *temperatures)))  # 4
        before = margins
    lambdas = np.where(A != 0, lambda_min + (lambda_max - lambda_min) * alpha, lambda_min)  # 5
    return lambdas * len(A) / lambdas.sum()  # 6


@pytest.mark.parametrize("K", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_steps_of_the_page_are_the_code_s(K, seed):
    hidden, log_probs, advantages = random_batch(seed)
    ours = token_coefficients(OutputRowGradients(hidden, log_probs), advantages, refinement_steps=K)
    by_the_page = coefficients_by_the_page(explicit_vectors(hidden, log_probs), advantages.numpy(), K)
    np.testing.assert_allclose(ours.numpy(), by_the_page, rtol=0, atol=1e-6)
