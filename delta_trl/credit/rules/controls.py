"""Controls for what a rule contributes: the paper's random λ and token selection, and means over sides."""

from dataclasses import dataclass, field
from typing import Any

import torch

from ..coefficients import check_credit_options, divide_by_mean, in_range, split_sides
from ..distributed import all_gather, all_reduce
from ..options import check_choices
from ..rule import Cost, TokenCredit
from ..tokens import Credit, Tokens
from .delta import DelTA


SELECTIONS = ("top", "bottom", "random")


@dataclass
class _InRange(TokenCredit):
    """λ in a range, from a share between 0 and 1 of each token."""

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
class RandomCredit(_InRange):
    """
    The paper's control without information: λ uniform in its range where A ≠ 0, and λ_min elsewhere.

    Args:
        lambda_min, lambda_max (`float`, *optional*, defaults to `0.8` and `1.2`): The range.
        normalize_coefficients (`bool`, *optional*, defaults to `True`): Divide by the mean over the rollout batch.
    """

    def shares(self, tokens: Tokens) -> torch.Tensor:
        A, sides = split_sides(tokens.advantages)
        return torch.rand_like(A) * sides.any(dim=0)


@dataclass
class Position(_InRange):
    """
    A control that knows nothing but where in its response a token stands: λ rises from its first to its last token.

    Args:
        lambda_min, lambda_max, normalize_coefficients: As of [`RandomCredit`].
    """

    def shares(self, tokens: Tokens) -> torch.Tensor:
        number = tokens.mask.cumsum(dim=1) - 1
        return tokens.flat(number / (number[:, -1:]).clamp(min=1))


@dataclass
class ChangedCredit(TokenCredit):
    """
    Another rule's credit, changed: a base of rules that override `change`.

    Args:
        rule ([`TokenCredit`], *optional*, defaults to [`DelTA`] with its defaults): The other rule.
    """

    rule: TokenCredit = field(default_factory=DelTA)

    def change(self, weights: torch.Tensor, tokens: Tokens) -> torch.Tensor:  # (N,) -> (N,)
        """What becomes of the other rule's weights. Not called where these are neutral."""
        raise NotImplementedError

    def of_rollout(self, tokens: Tokens) -> Credit | None:
        return self._changed(self.rule.of_rollout(tokens), tokens)

    def of_micro_batch(self, tokens: Tokens) -> Credit | None:
        return self._changed(self.rule.of_micro_batch(tokens), tokens)

    def _changed(self, credit: Credit | None, tokens: Tokens) -> Credit | None:
        if credit is None or credit.neutral:
            return credit
        return Credit(self.change(credit.weights, tokens), credit.metrics)  # of its scores nothing is known

    def cost(self) -> Cost:
        return self.rule.cost()

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
class SideMean(ChangedCredit):
    """
    Every token with A ≠ 0 gets the mean weight of its side: what is left of a rule without token-level information, a
    reweighting of winners against losers.

    Args:
        rule ([`TokenCredit`], *optional*, defaults to [`DelTA`] with its defaults): Whose weights to average.
    """

    def change(self, weights: torch.Tensor, tokens: Tokens) -> torch.Tensor:
        _, sides = split_sides(tokens.advantages)
        mean = all_reduce((sides * weights).sum(dim=1)) / all_reduce(sides.sum(dim=1).to(weights))
        return torch.where(sides[0], mean[0], torch.where(sides[1], mean[1], weights))


@dataclass
class Shuffled(ChangedCredit):
    """
    Another rule's weights, permuted among the tokens of each response: every response keeps the mass that the rule has
    given it, and nothing of where the rule has put it. What the rule does better than this is token-level information.

    Args:
        rule ([`TokenCredit`], *optional*, defaults to [`DelTA`] with its defaults): Whose weights to permute.
    """

    def change(self, weights: torch.Tensor, tokens: Tokens) -> torch.Tensor:
        # sorted by response, which are whole and in order, and within one by chance
        order = torch.rand(len(weights), device=weights.device, dtype=torch.float64).argsort()
        order = order[tokens.row[order].argsort(stable=True)]
        return weights[order]


@dataclass
class Selected(ChangedCredit):
    """
    The paper's token selection: plain weights on a part of the tokens. Of those with A ≠ 0, a fraction keeps weight 1,
    the others get 0; tokens with A = 0, which do not train, stay in the mean. Ties go by order.

    Args:
        rule ([`TokenCredit`], *optional*, defaults to [`DelTA`] with its defaults): By whose weights to select.
        which (`str`, *optional*, defaults to `"top"`): The `"top"` or the `"bottom"` by weight, or `"random"` ones.
        fraction (`float`, *optional*, defaults to `0.5`): How many, in (0, 1].
        normalize_coefficients (`bool`, *optional*, defaults to `True`): Divide by the mean over the rollout batch.
    """

    which: str = "top"
    fraction: float = 0.5
    normalize_coefficients: bool = True

    def __post_init__(self):
        check_choices(self, which=SELECTIONS)
        if not isinstance(self.fraction, (int, float)) or not 0 < self.fraction <= 1:
            raise ValueError(f"fraction={self.fraction!r}: expected a number in (0, 1].")
        if isinstance(self.rule, SideMean) and self.which != "random":
            raise ValueError(
                f"which={self.which!r} cannot choose among equal weights, which SideMean gives a whole side."
            )

    def change(self, weights: torch.Tensor, tokens: Tokens) -> torch.Tensor:
        _, sides = split_sides(tokens.advantages)
        candidates = sides.any(dim=0)
        key = torch.rand_like(weights) if self.which == "random" else weights
        key = key[candidates] if self.which == "bottom" else -key[candidates]
        keys, start = all_gather(key)
        chosen = torch.zeros_like(keys)
        chosen[keys.argsort(stable=True)[: max(1, round(self.fraction * len(keys)))]] = 1
        selected = torch.ones_like(weights)
        selected[candidates] = chosen[start : start + len(key)]
        return divide_by_mean(selected, 0.0) if self.normalize_coefficients else selected
