r"""
DelTA's coefficients, one weight for each token (arXiv 2605.21467, appendix H). Tokens count more if their gradients
are typical of their own side, winning or losing responses, and unlike those of the other side.

A sequence-level policy gradient moves the parameters along M₊ μ₊ - M₋ μ₋, the advantage-weighted centroids of the
token gradients of winning (A > 0) and losing (A < 0) responses. DelTA gives every token a coefficient by how much
closer its gradient v_j lies to the centroid of its own side than to the other one, so that the reweighted centroids
contrast more:

    μ±   = Σ |A_j| α_j v_j / Σ |A_j| α_j                       over each side, α = 1 at first
    Δ_j  = ‖v_j - μ₋‖² - ‖v_j - μ₊‖²                           on the + side, swapped on the - side
    γ±   = sqrt(max(Var(Δ), ε))                                over each side's tokens, Δ of the previous pass
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
The paper's ablations are options: hard assignment, kept temperatures, margins within a side.
Departures from the authors' code (a fork of verl, repository RUCBM/DelTA):
- Centroids, temperatures and Σ λ are reduced over all ranks. There, each data-parallel rank uses its own.
- An empty side is no contrast. There, its centroid is the zero vector and the other side is scored against that.
- A pass is two matrix-vector products over recorded hidden states. There, it is another forward pass of the actor.
- The loss is TRL's, by default a mean over the tokens of the whole batch. There, each micro-batch is averaged.
"""

import math
from typing import Any

import torch

from .gradients import TokenGradients
from .ranks import all_reduce, mean_over_ranks
from .rule import Credit


ASSIGNMENTS = ("soft", "hard")


@torch.no_grad()
def contrast_credit(
    gradients: TokenGradients,
    advantages: torch.Tensor,
    *,
    refinement_steps: int = 1,
    lambda_min: float = 0.8,
    lambda_max: float = 1.2,
    normalize: bool = True,
    assignment: str = "soft",
    margin: str = "contrast",
    temperatures: tuple[float, float] | None = None,
    eps: float = 1e-8,
) -> Credit:
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
        assignment (`str`, *optional*, defaults to `"soft"`):
            `"soft"`, α = σ(Δ / γ), or the ablation `"hard"`, α = 1 where Δ > 0 and 0 elsewhere.
        margin (`str`, *optional*, defaults to `"contrast"`):
            `"contrast"`, or the ablation `"within_side"`: Δ_j = -‖v_j - μ‖² with μ the centroid of the token's own
            side. Needs `gradients.squared_norms()`.
        temperatures (`tuple[float, float]`, *optional*):
            γ₊ and γ₋ to use instead of measured ones.
        eps (`float`, *optional*, defaults to `1e-8`):
            Floor of the variance under the temperature's square root, the authors' value.

    Returns:
        [`Credit`]: Weights of shape `(N,)`, float32, finite; exactly 1 for every token when there is no contrast, then
        `neutral`. Metrics `temperature_positive` and `temperature_negative`, the final γ₊ and γ₋, NaN if neutral.

    Raises:
        ValueError: If an option is unknown or `advantages` is not one-dimensional.
    """
    functions = {"contrast": _contrast_margins, "within_side": _within_side_margins}
    for option, value, known in (("assignment", assignment, ASSIGNMENTS), ("margin", margin, functions)):
        if value not in known:
            raise ValueError(f"{option}={value!r}: expected one of {', '.join(map(repr, known))}.")
    margins = functions[margin]
    A, sides = split_sides(advantages)  # (N,), (2, N)
    count = all_reduce(sides.sum(dim=1))  # (2,)
    neutral = not bool(count.all())
    lambdas = torch.ones_like(A)
    gamma = A.new_full((2,), math.nan)

    def temperature(delta: torch.Tensor) -> torch.Tensor:  # (2,)
        return A.new_tensor(temperatures) if temperatures else _temperatures(delta, sides, eps)

    if not neutral:
        delta = margins(gradients, sides, _centroid_weights(A, sides))
        gamma = temperature(delta)
        for _ in range(refinement_steps):
            alpha = _assign(delta, sides, gamma, assignment)
            gamma = temperature(delta)  # lagged: of the margins of this pass, not of those to the new centroids
            delta = margins(gradients, sides, _centroid_weights(A * alpha, sides))
        alpha = _assign(delta, sides, gamma, assignment)
        lambdas = in_range(alpha, lambda_min, lambda_max, normalize)
        neutral = not bool(all_reduce(lambdas.isfinite().all().to(A.dtype), "MIN"))
        if neutral:
            lambdas = torch.ones_like(A)
            gamma = gamma.fill_(math.nan)

    metrics = dict(zip(("temperature_positive", "temperature_negative"), gamma.tolist(), strict=True))
    return Credit(lambdas.float(), metrics, neutral)


def token_coefficients(gradients: TokenGradients, advantages: torch.Tensor, **options: Any) -> torch.Tensor:
    """The weights (N,) of [`contrast_credit`], which takes the same arguments: DelTA's coefficients alone."""
    return contrast_credit(gradients, advantages, **options).weights


def split_sides(advantages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages (N,) in float32 or better with NaN as 0, and the masks (2, N) of the + and of the - side."""
    if advantages.ndim != 1:
        raise ValueError(
            f"advantages: expected shape (N,), one advantage per token, got {tuple(advantages.shape)}. Repeat each "
            "response's advantage over its valid tokens."
        )
    dtype = torch.float64 if advantages.dtype == torch.float64 else torch.float32
    A = advantages.to(dtype).nan_to_num(nan=0.0)
    return A, torch.stack([A > 0, A < 0])


def in_range(alpha: torch.Tensor, lambda_min: float, lambda_max: float, normalize: bool) -> torch.Tensor:
    """λ (N,) from α in [0, 1], divided by its mean over all ranks if that is asked for."""
    lambdas = lambda_min + (lambda_max - lambda_min) * alpha
    return divide_by_mean(lambdas, lambda_min) if normalize else lambdas


def divide_by_mean(lambdas: torch.Tensor, lambda_min: float) -> torch.Tensor:
    """λ N / Z over all ranks. Z / N comes from λ - λ_min: where all λ equal λ_min, the result is 1 to the last bit."""
    own_excess = (lambdas - lambda_min).sum()
    own_tokens = lambdas.new_tensor(lambdas.numel())
    excess, n_tokens = all_reduce(torch.stack([own_excess, own_tokens]))
    return lambdas / (lambda_min + excess / n_tokens)


def _centroid_weights(A: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:  # (N,), (2, N) -> (2, N)
    """|A_j| over its sum over the side, of all ranks: the weights of the tokens in their side's centroid."""
    weights = sides * A.abs()
    weights /= all_reduce(weights.sum(dim=1, keepdim=True)).clamp(min=torch.finfo(A.dtype).tiny)
    return weights


def _assign(delta: torch.Tensor, sides: torch.Tensor, gamma: torch.Tensor, assignment: str) -> torch.Tensor:
    """α_j from Δ_j, shape (N,), with temperatures γ± (2,); 0 where A = 0."""
    if assignment == "hard":
        # the comparison alone would make a number of NaN, and hide it
        alpha = (delta > 0).to(delta).masked_fill(~delta.isfinite(), math.nan)
    else:
        alpha = torch.sigmoid(delta / torch.where(sides[0], gamma[0], gamma[1]))
    return alpha * sides.any(dim=0)


def _contrast_margins(gradients: TokenGradients, sides: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Δ_j = ‖v_j - μ₋‖² - ‖v_j - μ₊‖² on the + side, its negative on the - side, 0 elsewhere; shape (N,)."""
    direction = gradients.combine(weights[0] - weights[1])
    s = gradients.score(direction).to(weights)  # <v_j, μ₊ - μ₋>
    offset = all_reduce((weights * s).sum(dim=1)).sum()  # m₊ + m₋
    return (sides[0].to(s) - sides[1].to(s)) * (2 * s - offset)


def _within_side_margins(gradients: TokenGradients, sides: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Δ_j = -‖v_j - μ‖², μ the centroid of the token's own side; 0 elsewhere; shape (N,)."""
    margins = torch.zeros_like(weights[0])
    squared_norms = gradients.squared_norms().to(weights)  # type: ignore[attr-defined]  # OutputRowGradients only
    for side, w in zip(sides, weights, strict=True):
        s = gradients.score(gradients.combine(w)).to(weights)  # <v_j, μ>
        squared_length = all_reduce((w * s).sum())  # ‖μ‖²
        margins -= side * (squared_norms - 2 * s + squared_length)
    return margins


@torch.no_grad()
def compare_centroids(gradients: TokenGradients, advantages: torch.Tensor) -> dict[str, float]:
    """
    Compare μ₊ and μ₋ before any reweighting: `centroid_cosine` says how much background the two sides share;
    `centroid_norm_ratio` is |μ₊| / |μ₋|. Where v is about 0, the margin is |μ₋|² - |μ₊|² on the + side and its
    negative on the - side, whatever the token. NaN if a side is empty. Costs one `combine`; collective, like
    `token_coefficients`. For representations that combine two rows of weights at once.
    """
    A = advantages.nan_to_num(nan=0.0)
    weights = torch.stack([A.clamp(min=0), -A.clamp(max=0)])
    positive, negative = gradients.combine(weights)
    mass_positive, mass_negative = all_reduce(weights.sum(dim=1)).tolist()
    length_positive = positive.norm().item()
    length_negative = negative.norm().item()
    if not length_positive or not length_negative:
        return {"centroid_cosine": math.nan, "centroid_norm_ratio": math.nan}
    product = (positive * negative).sum().item()
    return {
        "centroid_cosine": product / (length_positive * length_negative),
        "centroid_norm_ratio": (length_positive / mass_positive) / (length_negative / mass_negative),
    }


def _temperatures(delta: torch.Tensor, sides: torch.Tensor, eps: float) -> torch.Tensor:
    """γ of each side, shape (2,): the population standard deviation of its margins, not weighted by advantage."""
    mean = mean_over_ranks(delta, sides)
    variance = mean_over_ranks((delta - mean[:, None]) ** 2, sides)
    return variance.clamp(min=eps).sqrt()


@torch.no_grad()
def coefficient_statistics(coefficients: torch.Tensor, advantages: torch.Tensor) -> dict[str, float]:
    """
    Statistics of the coefficients that train, those with A ≠ 0, over all ranks: `coefficient_{min,mean,max,std}`, the
    means on each side, and `between_sides_variance`, the share of the variance that lies between the two sides. NaN
    where undefined. Collective, like `token_coefficients`.
    """
    A, sides = split_sides(advantages)
    trains = sides.any(dim=0)
    coefficients = coefficients.to(A)[trains]
    sides = sides[:, trains]
    groups = torch.cat([torch.ones_like(sides[:1]), sides])  # all, +, -
    mean = mean_over_ranks(coefficients, groups)
    squares = (coefficients - mean[:, None]).nan_to_num() ** 2
    variance = mean_over_ranks(squares, groups)
    (winners,) = mean_over_ranks(sides[0], groups[:1])  # their share of the tokens
    between = winners * (1 - winners) * (mean[1] - mean[2]).nan_to_num() ** 2
    # a rank without tokens has neither a smallest nor a largest one
    infinity = coefficients.new_tensor([math.inf])
    own_smallest = torch.cat([coefficients, infinity]).min()
    own_largest = torch.cat([coefficients, -infinity]).max()
    smallest = all_reduce(own_smallest, "MIN").item()
    largest = all_reduce(own_largest, "MAX").item()
    is_empty = math.isinf(smallest)
    return {
        "coefficient_min": math.nan if is_empty else smallest,
        "coefficient_mean": mean[0].item(),
        "coefficient_max": math.nan if is_empty else largest,
        "coefficient_std": variance[0].sqrt().item(),
        "coefficient_mean_positive": mean[1].item(),
        "coefficient_mean_negative": mean[2].item(),
        "between_sides_variance": (between / variance[0]).item(),
    }
