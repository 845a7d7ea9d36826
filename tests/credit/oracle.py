"""The method as PAPER section 2 (appendix H) writes it, in float64 NumPy, with explicit vectors and squared distances.

Written for reading, not speed, and independently of `delta_trl.credit`: no shared code, no shared algebra.
"""

import numpy as np


def coefficients(
    v,
    advantages,
    refinement_steps=1,
    lambda_min=0.8,
    lambda_max=1.2,
    normalize_coefficients=True,
    eps=1e-8,
    assignment="soft",
    margin="contrast",
    temperatures=None,
):
    """λ̄ of N tokens with explicit vectors `v` (N, d) and the final temperatures (γ₊, γ₋). Options as of `DelTA`."""
    v = np.asarray(v, np.float64)
    A = np.asarray(advantages, np.float64)
    sides = {+1: A > 0, -1: A < 0}
    if not (A > 0).any() or not (A < 0).any():
        return np.ones(len(A)), (np.nan, np.nan)

    def centroids(alpha):
        weights = np.abs(A) * alpha
        return {side: np.average(v[tokens], axis=0, weights=weights[tokens]) for side, tokens in sides.items()}

    def squared_distances(centroid):
        return np.sum((v - centroid) ** 2, axis=1)

    def margins(mu):
        values = np.zeros(len(A))
        for side, tokens in sides.items():
            own = squared_distances(mu[side])
            other = squared_distances(mu[-side]) if margin == "contrast" else 0
            values[tokens] = (other - own)[tokens]
        return values

    def temperature(delta):
        if temperatures is not None:
            return dict(zip(sides, temperatures, strict=True))
        gamma = {}
        for side, tokens in sides.items():
            variance = np.var(delta[tokens])
            gamma[side] = np.sqrt(max(variance, eps))
        return gamma

    def assign(delta, gamma):
        alpha = np.zeros(len(A))
        for side, tokens in sides.items():
            ratio = delta[tokens] / gamma[side]
            alpha[tokens] = ratio > 0 if assignment == "hard" else 1 / (1 + np.exp(-ratio))
        return alpha

    mu = centroids(np.ones(len(A)))
    gamma = temperature(margins(mu))
    for _ in range(refinement_steps):
        delta = margins(mu)
        mu = centroids(assign(delta, gamma))
        gamma = temperature(delta)  # of this pass's margins, not of those with the new centroids
    alpha = assign(margins(mu), gamma)

    lam = lambda_min + (lambda_max - lambda_min) * alpha  # alpha is 0 without an advantage
    if normalize_coefficients:
        lam = lam / lam.mean()
    return lam, (gamma[+1], gamma[-1])
