"""Base classes and helpers that several rules share."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from ..coefficients import check_credit_options, in_range, split_sides
from ..distributed import all_reduce
from ..options import check_choices, check_number
from ..rule import Requirements, TokenCredit
from ..tokens import Credit, Tokens
from .delta import DelTA


@dataclass
class ChangedCredit(TokenCredit):
    """
    Base class of rules that change another rule's credit. They override `change`.

    Args:
        rule ([`TokenCredit`], *optional*, defaults to [`DelTA`] with its defaults): The other rule.
    """

    rule: TokenCredit = field(default_factory=DelTA)

    def change(self, weights: torch.Tensor, tokens: Tokens) -> torch.Tensor:  # (N,) -> (N,)
        """The new weights, from the other rule's. Not called for a neutral credit."""
        raise NotImplementedError

    def of_rollout(self, tokens: Tokens) -> Credit | None:
        return self._changed(self.rule.of_rollout(tokens), tokens)

    def of_micro_batch(self, tokens: Tokens) -> Credit | None:
        return self._changed(self.rule.of_micro_batch(tokens), tokens)

    def _changed(self, credit: Credit | None, tokens: Tokens) -> Credit | None:
        if credit is None or credit.neutral:
            return credit
        return Credit(self.change(credit.weights, tokens), credit.metrics)  # the other rule's scores no longer apply

    def requirements(self) -> Requirements:
        return self.rule.requirements()

    def check(self, trainer: Any) -> None:
        self.rule.check(trainer)

    def state_dict(self) -> dict[str, Any]:
        return self.rule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rule.load_state_dict(state)

    @property
    def credits_rollouts(self) -> bool:
        return self.rule.credits_rollouts

    @property
    def credits_micro_batches(self) -> bool:
        return self.rule.credits_micro_batches


@dataclass
class ShareInRange(TokenCredit):
    """Base class of rules that give each token a share between 0 and 1, which becomes a λ in a range."""

    lambda_min: float = 0.8
    lambda_max: float = 1.2
    normalize_coefficients: bool = True

    def __post_init__(self):
        check_credit_options(0, self.lambda_min, self.lambda_max)

    def shares(self, tokens: Tokens) -> torch.Tensor:  # (N,)
        raise NotImplementedError

    def of_rollout(self, tokens: Tokens) -> Credit:
        shares = self.shares(tokens)
        return Credit(in_range(shares, self.lambda_min, self.lambda_max, self.normalize_coefficients).float())


@dataclass
class TopOfResponse(TokenCredit):
    """
    Base class of rules that keep the tokens of each response with the highest scores; the others get `rest`. Weights
    are divided by their mean over the tokens with A ≠ 0.
    """

    fraction: float = 0.2
    side: str = "losers"
    rest: float = 0.0

    def __post_init__(self):
        check_choices(self, side=("winners", "losers", "both"))
        check_number(self, "fraction", "(0, 1]")
        check_number(self, "rest", "[0, 1)")

    def token_scores(self, tokens: Tokens) -> torch.Tensor:  # (N,)
        raise NotImplementedError

    def of_rollout(self, tokens: Tokens) -> Credit:
        _, sides = split_sides(tokens.advantages)
        masked = {"winners": sides[0], "losers": sides[1], "both": sides.any(dim=0)}[self.side]
        scores = self.token_scores(tokens)
        below = masked & ~top_of_rows(scores, tokens, self.fraction)
        weights = torch.where(below, self.rest, 1.0)
        return Credit(with_mean_one(weights, sides), scores=scores)


def with_mean_one(weights: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:  # (N,), (2, N) -> (N,)
    """
    Weights divided by their mean over the tokens with A ≠ 0 of all ranks, and 1 for the other tokens, which do not
    train. All are 1 if the weights of the tokens with A ≠ 0 sum to 0.
    """
    trains = sides.any(dim=0)
    total, count = all_reduce(torch.stack([(weights * trains).sum(), trains.sum().to(weights)]))
    if not total > 0:
        return torch.ones_like(weights)
    return torch.where(trains, weights * (count / total), torch.ones_like(weights))


def top_of_rows(scores: torch.Tensor, tokens: Tokens, fraction: float) -> torch.Tensor:  # (N,) -> (N,), bool
    """Which tokens are among the highest `fraction` of their response, rounded up. Of equal scores, the first ones."""
    keys = scores.new_full(tokens.mask.shape, -math.inf).masked_scatter_(tokens.mask, scores)
    order = keys.argsort(dim=1, descending=True, stable=True)
    rank = torch.zeros_like(order).scatter_(1, order, torch.arange(order.size(1)).to(order).expand_as(order))
    kept = (tokens.mask.sum(dim=1).double() * fraction - 1e-9).ceil()  # rounding errors must not add one
    return tokens.flat(rank < kept[:, None])
