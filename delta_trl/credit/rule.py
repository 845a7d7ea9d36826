"""The interface of a rule of token credit, and the checks of what a rule returns. See docs/token_credit.md."""

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .distributed import OutOfStepError, announce, in_step
from .tokens import Credit, Tokens


@dataclass(frozen=True)
class Requirements:
    """
    What `of_rollout` needs from the policy for every rollout batch.

    Args:
        hidden_states (`bool`, *optional*, defaults to `False`):
            Whether hidden states are read. They come from TRL's own scoring pass if it makes one, else from one more
            pass. If there is no room for them, every reading is a forward pass.
        recomputable (`bool`, *optional*, defaults to `True`):
            Whether a forward pass can stand in for stored hidden states. It cannot if a rule reads only some tokens'.
    """

    hidden_states: bool = False
    recomputable: bool = True


class TokenCredit:
    """
    A rule of token credit: how much of a response's advantage each of its tokens gets. This base changes nothing.

    Override the hook whose timing fits; both are called on every rank. Options should be dataclass fields.

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

    def requirements(self) -> Requirements:
        """
        What `of_rollout` needs. Hidden states that are not announced here cost a forward pass, even if TRL makes one.
        """
        return Requirements()

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
    """
    Raise `ValueError` for a subclass that overrides neither hook, for example because of a misspelt name, and for an
    option that is true or false and has another value.
    """
    options: tuple = dataclasses.fields(rule) if dataclasses.is_dataclass(rule) else ()
    for option in options:
        value = getattr(rule, option.name)
        if option.type in (bool, "bool") and type(value) is not bool:
            raise ValueError(f"{option.name}={value!r}: expected true or false.")
    kind, hooks = type(rule), ("of_rollout", "of_micro_batch")
    if kind is TokenCredit or rule.credits_rollouts or rule.credits_micro_batches:
        return
    meant = [(hook, name) for hook in hooks for name in difflib.get_close_matches(hook, vars(kind), n=1)]
    hint = f" Did you mean `{meant[0][0]}` by `{meant[0][1]}`?" if meant else ""
    raise ValueError(f"{kind.__name__} overrides neither `of_rollout` nor `of_micro_batch`: it credits nothing.{hint}")


class TokenCreditError(ValueError):
    """A rule returned something that cannot be used in training."""


def credit_at_rollout(rule: TokenCredit, tokens: Tokens) -> Credit | None:
    """A rule's credit while the policy is still that of the rollout: the product of both hooks' weights."""
    given = [checked_credit(rule, hook, tokens) for hook in ("of_rollout", "of_micro_batch")]
    found = [credit for credit in given if credit is not None]
    if len(found) < 2:
        return found[0] if found else None
    one, other = found
    return Credit(one.weights * other.weights, one.metrics | other.metrics, one.neutral and other.neutral)


def checked_credit(rule: TokenCredit, hook: str, tokens: Tokens, rehearse: bool = False) -> Credit | None:
    """What a hook of a rule returns, checked. `rehearse`: also check that all ranks take the same steps."""
    name = f"{type(rule).__name__}.{hook}"
    if not rehearse:
        return _check(name, getattr(rule, hook)(tokens), tokens)
    try:
        with in_step(tokens.mask.device):
            credit = _check(name, getattr(rule, hook)(tokens), tokens)
            announce(f"returns {type(credit).__name__}")
            return credit
    except OutOfStepError as error:
        raise TokenCreditError(
            f"{name} does not do the same on all ranks ({error}). Whatever a rank's tokens are, it must ask them for "
            "the same values and call the same collectives, in the same order."
        ) from error


def _check(name: str, credit: Credit | None, tokens: Tokens) -> Credit | None:
    if credit is None:
        return None
    if not isinstance(credit, Credit) or not isinstance(credit.weights, torch.Tensor):
        got = f"weights of {type(credit.weights)}" if isinstance(credit, Credit) else f"{type(credit)}"
        raise TokenCreditError(
            f"{name} returned {got}: expected a delta_trl.credit.Credit with a tensor of weights, or None."
        )
    returned = {"weights": credit.weights} | ({} if credit.scores is None else {"scores": credit.scores})
    for what, values in returned.items():
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
    scores = None if credit.scores is None else credit.scores.detach()
    metrics = {metric: _number(name, metric, value) for metric, value in credit.metrics.items()}
    return Credit(credit.weights.detach().float(), metrics, credit.neutral, scores)


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
