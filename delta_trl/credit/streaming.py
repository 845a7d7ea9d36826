r"""
Coefficients without a pass of their own: computed in the training forward, from what the previous rollout batch left.

The refinement of `coefficients.py` goes on from rollout batch to rollout batch. In batch b, with μ± and γ± of b - 1,

    Δ_j = ±(2 s_j - (m₊ + m₋)),  s_j = <v_j, μ₊ - μ₋>,   α_j = σ(Δ_j / γ±),   λ_j as there,

and the same forwards add up what b + 1 needs: μ± weighted by |A_j| α_j (by |A_j| with K = 0) and γ±, the spread of
these very Δ, lagged by one as in the paper. Z / N cannot be known before the batch ends. Its stand-in is

    λ_min + (λ_max - λ_min) (f₊ ᾱ₊ + f₋ ᾱ₋),

with f± the share of the present batch's tokens on each side and ᾱ± the mean α of each side in b - 1. So coefficients
of a batch average only about 1.
"""

from dataclasses import dataclass

import torch

from .coefficients import Contrast, assign, contrast_margins, split_sides
from .distributed import all_reduce
from .output_row import OutputRowGradients


@dataclass
class StreamingCredit:
    """
    DelTA coefficients of micro-batches, as they come.

    Args:
        refinement_steps (`int`): 0 or 1. With 1, centroids are weighted by α.
        lambda_min, lambda_max, normalize, assignment: As in [`token_coefficients`].
        keep_temperatures (`bool`): Whether γ± stay those of the first contrast.
        eps (`float`, *optional*): As in [`token_coefficients`].

    Attributes:
        contrast (`Contrast`): That of the previous rollout batch. To start with, `token_coefficients` fills it.
    """

    refinement_steps: int
    lambda_min: float
    lambda_max: float
    normalize: bool
    assignment: str
    keep_temperatures: bool
    eps: float = 1e-8

    def __post_init__(self):
        self.contrast = Contrast()

    def begin(self, advantages: torch.Tensor) -> bool:
        """
        Start a rollout batch with the `advantages` (N,) of all its tokens. Returns whether there is contrast between
        winners and losers; otherwise coefficients are to be 1. Collective.
        """
        _, sides = split_sides(advantages)
        self._count = all_reduce(torch.cat([sides, torch.ones_like(sides[:1])]).double().sum(dim=1))  # +, -, all
        self._seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._centroids = 0.0  # (2, d): Σ of weighted gradients on each side
        self._sums = 0.0  # (4, 2): Σ of weights, α, Δ and Δ² on each side
        return bool((self._count[:2] > 0).all())

    @torch.no_grad()
    def coefficients(self, gradients: OutputRowGradients, advantages: torch.Tensor) -> torch.Tensor:
        """Coefficients (N,) of the tokens of one micro-batch, float32."""
        c = self.contrast
        A, sides = split_sides(advantages)
        delta = contrast_margins(gradients.score(c.direction), c.offset, sides)
        alpha = assign(delta, sides, c.temperatures, self.assignment)
        weights = sides * A.abs() * (alpha if self.refinement_steps else 1.0)
        self._centroids = self._centroids + gradients.combine_here(weights)
        self._sums = self._sums + torch.stack(
            [(x * sides).double().sum(dim=1) for x in (weights.sum(dim=0), alpha, delta, delta.double() ** 2)]
        )
        width = self.lambda_max - self.lambda_min
        lambdas = self.lambda_min + width * alpha
        if self.normalize:
            share = self._count[:2] / self._count[2]
            lambdas = lambdas / (self.lambda_min + width * (share * c.mean_alpha).sum())
        lambdas = lambdas.float().nan_to_num(nan=1.0)  # where hidden states are not finite
        self._seen.append((lambdas, advantages))
        return lambdas

    def finish(self) -> tuple[torch.Tensor, torch.Tensor]:
        """
        End a rollout batch: its contrast is the next one's, unless it is not finite. Returns all coefficients and
        advantages (N,) of this rank. Collective.
        """
        sums = all_reduce(self._sums)
        count = self._count[:2]
        centroids = all_reduce(self._centroids).double() / sums[0, :, None]
        direction = centroids[0] - centroids[1]
        variance = (sums[3] / count - (sums[2] / count) ** 2).clamp(min=self.eps)
        gamma = self.contrast.temperatures if self.keep_temperatures else variance.sqrt()
        new = (direction, (centroids[0] + centroids[1]) @ direction, gamma, sums[1] / count)
        if all(x.isfinite().all() for x in new):
            self.contrast = Contrast(*(x.to(direction.device, torch.float32) for x in new))
        lambdas, advantages = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
        return lambdas, advantages
