"""
Rules that look at a token's probability alone: by log-probabilities and entropies of the rollout, which cost nothing
where TRL scores the rollout batch anyway, or by the present policy's, which the loss needs.
"""

import math
from dataclasses import dataclass

import torch

from ..coefficients import split_sides
from ..distributed import all_gather, all_reduce
from ..options import check_choices
from ..rule import Cost, TokenCredit
from ..tokens import Credit, Tokens
from .balance import with_mean_one


SIDES = ("winners", "losers", "both")


@dataclass
class _TopOfResponse(TokenCredit):
    """Of each response on a side, the tokens with the highest scores; the others get `rest`."""

    fraction: float = 0.2
    side: str = "losers"
    rest: float = 0.0
    normalize: bool = True

    def __post_init__(self):
        check_choices(self, side=SIDES)
        if not isinstance(self.fraction, (int, float)) or not 0 < self.fraction <= 1:
            raise ValueError(f"fraction={self.fraction!r}: expected a number in (0, 1].")
        if not isinstance(self.rest, (int, float)) or not 0 <= self.rest < 1:
            raise ValueError(f"rest={self.rest!r}: expected a number in [0, 1).")
        if not isinstance(self.normalize, bool):
            raise ValueError(f"normalize={self.normalize!r}: expected true or false.")

    def score(self, tokens: Tokens) -> torch.Tensor:  # (N,)
        raise NotImplementedError

    def of_rollout(self, tokens: Tokens) -> Credit:
        _, sides = split_sides(tokens.advantages)
        chosen = {"winners": sides[0], "losers": sides[1], "both": sides.any(dim=0)}[self.side]
        scores = self.score(tokens)
        below = chosen & ~top_of_rows(scores, tokens, self.fraction)
        weights = torch.where(below, self.rest, 1.0)
        return Credit(with_mean_one(weights, sides) if self.normalize else weights, scores=scores)

    def cost(self) -> Cost:
        return Cost(scores=True)


@dataclass
class Surprisal(_TopOfResponse):
    """
    The tokens of each response that surprised the policy most, -log π, keep their weight; the others lose it.

    Args:
        fraction (`float`, *optional*, defaults to `0.2`): Of the tokens of a response, rounded up.
        side (`str`, *optional*, defaults to `"losers"`): In `"losers"`, `"winners"` or `"both"`; all 1 on the other.
        rest (`float`, *optional*, defaults to `0.0`): Weight of the other tokens, in [0, 1).
        normalize (`bool`, *optional*, defaults to `True`): Divide by the mean over the tokens with A ≠ 0.
    """

    def score(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.log_probs


@dataclass
class Entropy(_TopOfResponse):
    """
    Like [`Surprisal`], by the entropy of the distribution that the token was sampled from. For the forking tokens of
    Wang et al. (arXiv 2506.01939), a quantile over the batch, see TRL's `top_entropy_quantile`.

    Args:
        fraction, side, rest, normalize: As of [`Surprisal`].
    """

    def score(self, tokens: Tokens) -> torch.Tensor:
        return tokens.entropies


def top_of_rows(scores: torch.Tensor, tokens: Tokens, fraction: float) -> torch.Tensor:  # (N,) -> (N,), bool
    """Which tokens are among the highest `fraction` of their response, rounded up; ties go by order."""
    keys = scores.new_full(tokens.mask.shape, -math.inf).masked_scatter_(tokens.mask, scores)
    order = keys.argsort(dim=1, descending=True, stable=True)
    rank = torch.zeros_like(order).scatter_(1, order, torch.arange(order.size(1)).to(order).expand_as(order))
    kept = (tokens.mask.sum(dim=1).double() * fraction - 1e-9).ceil()  # not one more by rounding
    return tokens.flat(rank < kept[:, None])


@dataclass
class AdvantageReweighting(TokenCredit):
    r"""
    w = α π + (1 - α): tokens that the policy was sure of count more (advantage reweighting, arXiv 2505.12929).

    Args:
        alpha (`float`, *optional*, defaults to `0.3`): α, in [0, 1].
    """

    alpha: float = 0.3

    def __post_init__(self):
        if not isinstance(self.alpha, (int, float)) or not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha={self.alpha!r}: expected a number in [0, 1].")

    def of_rollout(self, tokens: Tokens) -> Credit:
        return Credit(self.alpha * tokens.log_probs.exp() + 1 - self.alpha)

    def cost(self) -> Cost:
        return Cost(scores=True)


@dataclass
class STARE(TokenCredit):
    """
    While the policy's entropy is low, the most surprising tokens of winners count more and those of losers less
    (arXiv 2606.19236; formula and defaults of its authors' code, with both sides).

    By the present policy, in every micro-batch. Departure: a micro-batch is that of all processes together, not each
    one's own.

    Args:
        fraction (`float`, *optional*, defaults to `0.1`): How many of a side's tokens are surprising, rounded up.
        winners, losers (`float`, *optional*, defaults to `1.1` and `0.9`): What they count.
        entropy (`float`, *optional*, defaults to `0.3`): Applies while the mean entropy, in nats, is lower.
    """

    fraction: float = 0.1
    winners: float = 1.1
    losers: float = 0.9
    entropy: float = 0.3

    def __post_init__(self):
        if not isinstance(self.fraction, (int, float)) or not 0 < self.fraction <= 1:
            raise ValueError(f"fraction={self.fraction!r}: expected a number in (0, 1].")
        for name in ("winners", "losers", "entropy"):
            if not isinstance(getattr(self, name), (int, float)):
                raise ValueError(f"{name}={getattr(self, name)!r}: expected a number.")

    def of_micro_batch(self, tokens: Tokens) -> Credit:
        _, sides = split_sides(tokens.advantages)
        total, count = all_reduce(torch.stack([tokens.entropies.sum(), torch.ones_like(tokens.entropies).sum()]))
        applies = bool(total < self.entropy * count)
        weights = torch.ones_like(tokens.log_probs)
        if applies:
            for side, weight in zip(sides, (self.winners, self.losers), strict=True):
                everyones, start = all_gather(tokens.log_probs[side])  # ascending: the most surprising come first
                chosen = torch.zeros_like(everyones, dtype=torch.bool)
                chosen[everyones.argsort(stable=True)[: math.ceil(self.fraction * len(everyones) - 1e-6)]] = True
                ours = chosen[start : start + int(side.sum())]
                weights[side] = torch.where(ours, weight, weights[side])
        return Credit(weights, {"stare_applies": float(applies)}, neutral=not applies)


@dataclass
class TACO(TokenCredit):
    r"""
    Tokens of winners that are less probable than the distribution they were drawn from makes one expect count less
    (arXiv 2607.07976; formula and defaults of its authors' code):

        r = -log π - H + log α,   w = 1 - λ (1 - e^-r) where r > 0 and A > 0, else 1

    By the present policy, in every micro-batch.

    Args:
        alpha (`float`, *optional*, defaults to `0.01`): α, in (0, 1]: how improbable counts as the tail.
        strength (`float`, *optional*, defaults to `0.9`): λ, in [0, 1].
    """

    alpha: float = 0.01
    strength: float = 0.9

    def __post_init__(self):
        if not isinstance(self.alpha, (int, float)) or not 0 < self.alpha <= 1:
            raise ValueError(f"alpha={self.alpha!r}: expected a number in (0, 1].")
        if not isinstance(self.strength, (int, float)) or not 0 <= self.strength <= 1:
            raise ValueError(f"strength={self.strength!r}: expected a number in [0, 1].")

    def of_micro_batch(self, tokens: Tokens) -> Credit:
        risk = (-tokens.log_probs - tokens.entropies + math.log(self.alpha)).clamp(min=0)
        weights = 1 - self.strength * (1 - torch.exp(-risk))
        return Credit(torch.where(tokens.advantages > 0, weights, 1.0))
