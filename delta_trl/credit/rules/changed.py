"""The base class of rules that change another rule's weights, such as controls."""

from dataclasses import dataclass, field
from typing import Any

import torch

from ..rule import Credit, TokenCredit, TokenCreditError, Tokens
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
        if credit.weights is None:
            raise TokenCreditError(f"{type(self).__name__} changes weights, but {self.rule!r} gives advantages.")
        return Credit(self.change(credit.weights, tokens), credit.metrics)

    @property
    def needs_hidden_states(self) -> bool:
        return self.rule.needs_hidden_states

    @property
    def reads_all_rows(self) -> bool:
        return self.rule.reads_all_rows

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
