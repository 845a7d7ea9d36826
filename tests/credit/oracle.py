"""The method as PAPER section 2 (appendix H) writes it, in float64 NumPy, with explicit vectors and squared distances.

Written for reading, not speed, and independently of `delta_trl.credit`: no shared code, no shared algebra.
"""

import numpy as np


def coefficients(
    v,
    advantages,
    K=1,
    lambda_min=0.8,
    lambda_max=1.2,
    normalize=True,
    eps=1e-8,
    assignment="soft",
    margin="contrast",
    temperatures=None,
):
    """λ̄ of N tokens with explicit vectors `v` (N, d) and the final temperatures (γ₊, γ₋)."""
    v, A = np.asarray(v, np.float64), np.asarray(advantages, np.float64)
    sides = {+1: np.flatnonzero(A > 0), -1: np.flatnonzero(A < 0)}
    if any(len(tokens) == 0 for tokens in sides.values()):
        return np.ones(len(A)), (np.nan, np.nan)

    def centroid(side, alpha):
        total, weight = np.zeros(v.shape[1]), 0.0
        for j in sides[side]:
            total += abs(A[j]) * alpha[j] * v[j]
            weight += abs(A[j]) * alpha[j]
        return total / weight

    def margins(mu):
        values = np.zeros(len(A))
        for side, tokens in sides.items():
            for j in tokens:
                own, other = np.sum((v[j] - mu[side]) ** 2), np.sum((v[j] - mu[-side]) ** 2)
                values[j] = other - own if margin == "contrast" else -own
        return values

    def temperature(margin):
        if temperatures is not None:
            return {+1: temperatures[0], -1: temperatures[1]}
        return {side: np.sqrt(max(np.var(margin[tokens]), eps)) for side, tokens in sides.items()}

    def assign(margin, gamma):
        alpha = np.zeros(len(A))
        for side, tokens in sides.items():
            ratio = margin[tokens] / gamma[side]
            alpha[tokens] = ratio > 0 if assignment == "hard" else 1 / (1 + np.exp(-ratio))
        return alpha

    mu = {side: centroid(side, np.ones(len(A))) for side in sides}
    gamma = temperature(margins(mu))
    for _ in range(K):
        delta = margins(mu)
        alpha = assign(delta, gamma)
        mu = {side: centroid(side, alpha) for side in sides}
        gamma = temperature(delta)  # of this pass's margins, not of those with the new centroids
    alpha = assign(margins(mu), gamma)

    lam = np.full(len(A), lambda_min)
    for tokens in sides.values():
        lam[tokens] = lambda_min + (lambda_max - lambda_min) * alpha[tokens]
    if normalize:
        lam = lam * len(A) / lam.sum()
    return lam, (gamma[+1], gamma[-1])
