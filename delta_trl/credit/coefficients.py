r"""
DelTA token coefficients (arXiv 2605.21467, appendix H).

A sequence-level policy gradient moves the parameters along M₊ μ₊ - M₋ μ₋, the advantage-weighted centroids of the
token gradients of winning (A > 0) and losing (A < 0) responses. DelTA gives every token a coefficient by how much
closer its gradient v_j lies to the centroid of its own side than to the other one, so that the reweighted centroids
contrast more:

    μ±   = Σ |A_j| α_j v_j / Σ |A_j| α_j                       over each side, α = 1 at first
    Δ_j  = ‖v_j - μ₋‖² - ‖v_j - μ₊‖²                           on the + side, swapped on the - side
    γ±   = sqrt(max(Var(Δ), ε))                                over each side's tokens, lagged by one pass
    α_j  = σ(Δ_j / γ)                                          = argmax_α α Δ_j + γ h(α), h the binary entropy
    λ_j  = λ_min + (λ_max - λ_min) α_j,  λ_min where A_j = 0   after K refinements of μ and γ
    λ̄_j  = λ_j N / Σ λ                                         over the N valid tokens of the rollout batch

Neither ‖v_j‖² nor v_j itself is needed. With s_j = <v_j, μ₊ - μ₋> and m± its weighted mean over each side,

    Δ_j = ±(2 s_j - (m₊ + m₋)),

because m₊ + m₋ = <μ₊ + μ₋, μ₊ - μ₋> = ‖μ₊‖² - ‖μ₋‖². A pass is one `combine` and one `score`.

Departures from the paper:
- The formula above replaces explicit squared distances; the values are the same.
- A side's total weight is guarded against exactly 0 only, so coefficients do not depend on the advantages' scale.
- A batch with an empty side, or with non-finite gradients, gets coefficients of exactly 1.
- NaN advantages (unscorable responses) count as 0.
Departures from the authors' code (a fork of verl, repository RUCBM/DelTA):
- Centroids, temperatures and Σ λ are reduced over all ranks. There, each data-parallel rank uses its own.
- An empty side is no contrast. There, its centroid is the zero vector and the other side is scored against that.
- A pass is two matrix-vector products over recorded hidden states. There, it is another forward pass of the actor.
"""

import math

import torch

from .distributed import all_reduce
from .gradients import TokenGradients


def check_credit_options(refinement_steps: int, lambda_min: float, lambda_max: float) -> None:
    """Raise `ValueError`, naming option and value, if an option of `token_coefficients` is out of its range."""
    if not isinstance(refinement_steps, int) or isinstance(refinement_steps, bool) or refinement_steps < 0:
        raise ValueError(
            f"refinement_steps={refinement_steps!r}: the number of centroid refinements (the paper's K) must be an "
            "integer >= 0."
        )
    for name, value in (("lambda_min", lambda_min), ("lambda_max", lambda_max)):
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise ValueError(f"{name}={value!r}: a coefficient bound must be a finite number >= 0.")
    if lambda_min > lambda_max or lambda_max == 0:
        raise ValueError(
            f"lambda_min={lambda_min!r}, lambda_max={lambda_max!r}: expected lambda_min <= lambda_max and "
            "lambda_max > 0 (the paper uses 0.8 and 1.2)."
        )


@torch.no_grad()
def token_coefficients(
    gradients: TokenGradients,
    advantages: torch.Tensor,
    *,
    refinement_steps: int = 1,
    lambda_min: float = 0.8,
    lambda_max: float = 1.2,
    normalize: bool = True,
    eps: float = 1e-8,
    statistics: dict[str, float] | None = None,
) -> torch.Tensor:
    r"""
    DelTA coefficients of the valid completion tokens of one rollout batch (see the module's docstring for the method).

    Collective when `torch.distributed` is initialised: every rank passes its own tokens (possibly none) and gets their
    coefficients with respect to the whole batch.

    Args:
        gradients (`TokenGradients`):
            Representation of the N token gradients, for example [`OutputRowGradients`].
        advantages (`torch.Tensor` of shape `(N,)`):
            Advantage of each token's response.
        refinement_steps (`int`, *optional*, defaults to `1`):
            K, how often centroids and temperatures are refined.
        lambda_min, lambda_max (`float`, *optional*, defaults to `0.8` and `1.2`):
            Range of λ before normalisation. `0` and `1` give the raw α.
        normalize (`bool`, *optional*, defaults to `True`):
            Divide by the mean over the rollout batch, so that coefficients average 1 (and may leave the range).
        eps (`float`, *optional*, defaults to `1e-8`):
            Floor of the variance under the temperature's square root, the authors' value.
        statistics (`dict`, *optional*):
            Filled with `coefficient_{min,mean,max,std}`, the means on each side, `between_sides_variance` (share of
            the coefficients' variance over tokens with A ≠ 0 that lies between the two sides), the final
            `temperature_{positive,negative}` and `neutral` (1 if there was no contrast). All over the whole batch.

    Returns:
        `torch.Tensor` of shape `(N,)`, float32, finite. Exactly 1 for every token when there is no contrast.

    Raises:
        ValueError: If an option is out of range or `advantages` is not one-dimensional.
    """
    check_credit_options(refinement_steps, lambda_min, lambda_max)
    if advantages.ndim != 1:
        raise ValueError(
            f"advantages: expected shape (N,), one advantage per token, got {tuple(advantages.shape)}. Repeat each "
            "response's advantage over its valid tokens."
        )
    A = advantages.to(torch.float64 if advantages.dtype == torch.float64 else torch.float32).nan_to_num(nan=0.0)
    sides = torch.stack([A > 0, A < 0])  # (2, N)
    count = all_reduce(sides.sum(dim=1).to(A.dtype))  # (2,)
    neutral = not bool((count > 0).all())
    lambdas, gamma = torch.ones_like(A), A.new_full((2,), math.nan)

    if not neutral:
        alpha, margin = torch.ones_like(A), None
        for k in range(refinement_steps + 1):
            weights = sides * (A.abs() * alpha)  # (2, N)
            weights /= all_reduce(weights.sum(dim=1, keepdim=True)).clamp(min=torch.finfo(A.dtype).tiny)
            s = gradients.score(gradients.combine(weights[0] - weights[1])).to(A)  # (N,)
            offset = all_reduce((weights * s).sum(dim=1)).sum()  # m₊ + m₋
            lagged, margin = margin, A.sign() * (2 * s - offset)
            gamma = _temperatures(margin if k == 0 else lagged, sides, count, eps)  # (2,)
            alpha = torch.sigmoid(margin / torch.where(sides[0], gamma[0], gamma[1]))
        alpha = alpha * sides.any(dim=0)
        lambdas = lambda_min + (lambda_max - lambda_min) * alpha
        if normalize:
            # Z / N through the mean of α: equals λ_min to the last bit when λ_min = λ_max, so that λ̄ is exactly 1
            total, n_tokens = all_reduce(torch.stack([alpha.sum(), A.new_tensor(A.numel())]))
            lambdas = lambdas / (lambda_min + (lambda_max - lambda_min) * total / n_tokens)
        neutral = not bool(all_reduce(lambdas.isfinite().all().to(A.dtype), "MIN"))
        if neutral:
            lambdas, gamma = torch.ones_like(A), gamma.fill_(math.nan)

    if statistics is not None:
        statistics.update(_statistics(lambdas, sides, count))
        statistics["temperature_positive"], statistics["temperature_negative"] = gamma.tolist()
        statistics["neutral"] = float(neutral)
    return lambdas.float()


@torch.no_grad()
def centroid_cosine(gradients: TokenGradients, advantages: torch.Tensor) -> float:
    """
    Cosine between μ₊ and μ₋ before any reweighting: how much background the two sides share. NaN if a side is empty.
    Costs two `combine`; collective, like `token_coefficients`.
    """
    A = advantages.nan_to_num(nan=0.0)
    positive, negative = gradients.combine(A.clamp(min=0)), gradients.combine(-A.clamp(max=0))
    lengths = positive.norm() * negative.norm()
    return ((positive * negative).sum() / lengths).item() if lengths > 0 else math.nan


def _temperatures(margin: torch.Tensor, sides: torch.Tensor, count: torch.Tensor, eps: float) -> torch.Tensor:
    """γ of each side, shape (2,): the population standard deviation of its margins, not weighted by advantage."""
    mean = all_reduce((sides * margin).sum(dim=1)) / count
    variance = all_reduce((sides * (margin - mean[:, None]) ** 2).sum(dim=1)) / count
    return variance.clamp(min=eps).sqrt()


def _statistics(coefficients: torch.Tensor, sides: torch.Tensor, count: torch.Tensor) -> dict[str, float]:
    groups = torch.cat([torch.ones_like(sides[:1]), sides])  # all, +, -
    count = torch.cat([all_reduce(count.new_tensor([coefficients.numel()])), count])
    mean = all_reduce((groups * coefficients).sum(dim=1)) / count  # (3,), NaN for an empty side
    variance = all_reduce((groups * (coefficients - mean[:, None]).nan_to_num() ** 2).sum(dim=1)) / count
    within = (count[1:] * variance[1:]).nansum() / count[1:].sum()
    between = (count[1:].prod() * (mean[1] - mean[2]) ** 2).nan_to_num() / count[1:].sum() ** 2
    infinity = coefficients.new_tensor([math.inf])
    return {
        "coefficient_min": all_reduce(torch.cat([coefficients, infinity]).min(), "MIN").item(),
        "coefficient_mean": mean[0].item(),
        "coefficient_max": all_reduce(torch.cat([coefficients, -infinity]).max(), "MAX").item(),
        "coefficient_std": variance[0].sqrt().item(),
        "coefficient_mean_positive": mean[1].item(),
        "coefficient_mean_negative": mean[2].item(),
        "between_sides_variance": (between / (between + within)).item(),  # NaN where nothing varies
    }
