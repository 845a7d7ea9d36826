"""The interface of a rule of token credit, and the checks of what a rule returns. See docs/token_credit.md."""

import difflib
from typing import Any, ClassVar

import torch

from .tokens import Credit, Tokens


class TokenCredit:
    """
    A rule of token credit: how much of a response's advantage each of its tokens gets. This base changes nothing.

    Override the hook whose timing fits; both are called on every rank. Hooks are collective: on every rank they must
    ask for the same values and call the same sums, in the same order. Options should be dataclass fields.

    Attributes:
        arxiv (`str`, *optional*): The arXiv number of the rule's paper, for the model card.
    """

    arxiv: ClassVar[str | None] = None

    def of_rollout(self, tokens: Tokens) -> Credit | None:
        """The credit of a rollout batch before it is trained on, for all optimiser steps over it."""
        return None

    def of_micro_batch(self, tokens: Tokens) -> Credit | None:
        """
        The credit of a micro-batch in training. `tokens.log_probs` are those of the present policy, from the forward
        pass that the loss makes anyway.
        """
        return None

    @property
    def needs_hidden_states(self) -> bool:
        """
        Whether `of_rollout` reads hidden states. They are then kept from TRL's own scoring pass, if it makes one. A
        rule that reads them without saying so costs a forward pass.
        """
        return False

    def check(self, trainer: Any) -> None:
        """Raise `ValueError`, with a suggested fix, if it cannot work with the trainer. Called at construction."""

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on exactly: tensors and plain values, saved with every checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state`, or start anew if it is empty. Called whenever training starts."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def credits_rollouts(self) -> bool:
        """Whether `of_rollout` is overridden."""
        return type(self).of_rollout is not TokenCredit.of_rollout

    @property
    def credits_micro_batches(self) -> bool:
        """Whether `of_micro_batch` is overridden."""
        return type(self).of_micro_batch is not TokenCredit.of_micro_batch


def check_rule(rule: TokenCredit) -> None:
    """Raise `ValueError` for a subclass that overrides neither hook, for example because of a misspelt name."""
    kind, hooks = type(rule), ("of_rollout", "of_micro_batch")
    if kind is TokenCredit or rule.credits_rollouts or rule.credits_micro_batches:
        return
    meant = [(hook, name) for hook in hooks for name in difflib.get_close_matches(hook, vars(kind), n=1)]
    hint = f" Did you mean `{meant[0][0]}` by `{meant[0][1]}`?" if meant else ""
    raise ValueError(f"{kind.__name__} overrides neither `of_rollout` nor `of_micro_batch`: it credits nothing.{hint}")


class TokenCreditError(ValueError):
    """A rule returned something that cannot be used in training."""


def checked_credit(rule: TokenCredit, hook: str, tokens: Tokens) -> Credit | None:
    """
    What a hook of a rule returns: weights and advantages of shape (N,) in float32, without gradient, and metrics as
    numbers. Of a rule that gives advantages, the weights are those over the response's advantage; 1 where that is 0.

    Raises:
        TokenCreditError: If it returns something else.
    """
    name, credit = f"{type(rule).__name__}.{hook}", getattr(rule, hook)(tokens)
    if credit is None:
        return None
    if not isinstance(credit, Credit) or (credit.weights is None) == (credit.advantages is None):
        got = f"{type(credit)}" if not isinstance(credit, Credit) else "both or neither of weights and advantages"
        raise TokenCreditError(f"{name} returned {got}: expected a delta_trl.credit.Credit with one of them, or None.")
    what, values = ("weights", credit.weights) if credit.advantages is None else ("advantages", credit.advantages)
    if not isinstance(values, torch.Tensor):
        raise TokenCreditError(f"{name} returned {what} of {type(values)}: expected a tensor.")
    if values.shape != tokens.ids.shape:
        hint = f" Leave out padding with `tokens.flat({what})`." if values.shape == tokens.mask.shape else ""
        raise TokenCreditError(
            f"{name} returned {what} of shape {tuple(values.shape)}: expected ({len(tokens)},), one for each of "
            f"the tokens.{hint}"
        )
    wrong = ~torch.isfinite(values)
    if not values.dtype.is_floating_point or wrong.any():
        got = f"{values[wrong][:3].tolist()} among its {what}" if wrong.any() else f"{what} of {values.dtype}"
        raise TokenCreditError(f"{name} returned {got}: expected finite floating-point numbers.")
    metrics = {metric: _number(name, metric, value) for metric, value in credit.metrics.items()}
    values = values.detach().float()
    if what == "weights":
        return Credit(values, metrics, credit.neutral, advantages=tokens.advantages * values)
    weights = torch.where(tokens.advantages == 0, 1.0, values / tokens.advantages)
    return Credit(weights, metrics, credit.neutral, advantages=values)


def _number(name: str, metric: str, value: Any) -> float:
    """A metric, for example a tensor with one element, as a number: checkpoints hold metrics as JSON."""
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError, RuntimeError):
        pass
    raise TokenCreditError(
        f"{name} returned the metric {metric!r}: {value!r}: expected a number, NaN where it is undefined."
    )
