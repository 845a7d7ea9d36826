r"""
FIPO token weights (arXiv 2603.19835), a baseline of the DelTA paper: a token counts by how the policy has changed the
probabilities of the tokens after it.

    FutureKL_t = Σ_{k ≥ t} γ^{k-t} M_k (log π_θ(o_k) - log π_old(o_k)),   γ = 2^{-1 / decay}
    f_t        = clip(exp(FutureKL_t), 1, 1 + clip)

M masks padding, and tokens whose ratio π_θ / π_old exceeds the loss's own bound, `delta` in the training arguments.
Where A < 0 and the ratio exceeds the safety threshold, f is clipped to [0.8, 1] instead. f carries no gradient.
Defaults are the settings of the DelTA paper; formula and parameters as documented by ms-swift.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad

from ...arguments.values import check_values
from ..ranks import mean_over_ranks
from ..rule import Credit, TokenCredit, Tokens


SAFETY_THRESHOLD = 10.0  # of the ratio, above which losers' tokens are not amplified


@dataclass
class FIPO(TokenCredit):
    """
    Future-KL weights (arXiv 2603.19835), which depend on how the policy has moved since the rollout.

    Args:
        decay (`float`, *optional*, defaults to `32.0`): Tokens after which the future's influence has halved.
        clip (`float`, *optional*, defaults to `0.2`): Upper clip of f above 1.
    """

    arxiv = "2603.19835"

    decay: float = 32.0
    clip: float = 0.2

    def __post_init__(self):
        check_values(self, decay="(0, inf]", clip="(0, inf]")
        self._dual_clip: float | None = None  # of the trainer's loss

    def check(self, trainer: Any) -> None:
        args = trainer.args
        self._dual_clip = args.delta
        if args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations) == 0:
            raise ValueError(
                "FIPO weighs tokens by how the policy has moved since the rollout, and with one optimiser step per "
                "rollout batch it has not: all weights are 1. Raise steps_per_generation * num_iterations "
                f"({args.steps_per_generation * args.num_iterations}) above gradient_accumulation_steps "
                f"({args.gradient_accumulation_steps})."
            )

    def of_micro_batch(self, tokens: Tokens) -> Credit:
        # without the gaps of tools' texts: the future is that of the policy's tokens
        lengths = tokens.mask.sum(dim=1)
        longest = int(lengths.max())
        mask = torch.arange(longest, device=lengths.device) < lengths[:, None]

        def rows(values: torch.Tensor) -> torch.Tensor:  # (N,) -> (B, longest)
            return values.new_zeros(mask.shape).masked_scatter_(mask, values)

        new = rows(tokens.log_probs)
        old = rows(tokens.old_log_probs)
        weights = self.weights(new, old, rows(tokens.advantages), mask)[mask]
        mean = mean_over_ranks(weights, torch.ones_like(weights)[None])
        return Credit(weights, {"fipo_weight_mean": mean.item()})

    @torch.no_grad()
    def weights(
        self, log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """f (B, T) of one micro-batch, from tensors (B, T), `advantages` also (B,); 1 where nothing has moved."""
        shift = (log_probs - old_log_probs) * mask
        ratio = shift.exp()
        counted = shift if self._dual_clip is None else shift * (ratio <= self._dual_clip)
        gamma = 2 ** (-1 / self.decay)
        weights = discounted_future_sum(counted, gamma).exp()
        of_loser = (advantages < 0).view(len(mask), -1)
        damped = weights.clamp(0.8, 1.0)
        amplified = weights.clamp(1.0, 1.0 + self.clip)
        return torch.where(of_loser & (ratio > SAFETY_THRESHOLD), damped, amplified)


def discounted_future_sum(x: torch.Tensor, gamma: float) -> torch.Tensor:
    """Σ_{k ≥ t} γ^{k-t} x_k for every t, along the last dimension of (B, T), in log2(T) steps."""
    reach = 1  # every sum has so many terms
    while reach < x.size(1):
        next_terms = pad(x[:, reach:], (0, reach))
        x = x + gamma**reach * next_terms
        reach *= 2
    return x
