"""
A rollout batch on its way through TRL's methods. They pass some of it on as arguments; the rest is a `ScoringCall`,
which the trainer holds for as long as one of these methods runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from .recorder import Recorder


# Columns of a rollout batch, which TRL shuffles and splits with all others
PLACE = "rollout_place"  # (B,): each row's place in the order in which rows are scored and trained
SCORED = "rollout_scored"  # (B,): whether the row was scored


class RewardCall(NamedTuple):
    """What TRL gives `_calculate_rewards`, for the B rows of this process."""

    inputs: list[dict[str, Any]]
    prompts: list
    completions: list
    completion_ids: list[list[int]]


class SampledRows(Protocol):
    """Completions that were sampled before TRL asks for them, as dynamic sampling does."""

    rewards: torch.Tensor
    rows: list[Any]

    def log(self, trainer: Any) -> None:
        """Log their metrics, once TRL has logged those of the rollout batch."""


@dataclass
class Rollout:
    """
    One rollout batch of this process, from its prompts to its advantages.

    Args:
        order (`torch.Tensor` of shape `(B,)`): Its rows in the order in which they are scored and trained.
        sampled ([`SampledRows`], *optional*): Its completions and rewards, if they are there already.

    Attributes:
        rewards (`torch.Tensor` of shape `(rows of all processes, functions)`):
            Those from which TRL computes advantages. NaN: not scored.
        reward_call ([`RewardCall`]): The call that returned them.
    """

    order: torch.Tensor
    sampled: SampledRows | None = None
    rewards: torch.Tensor = field(init=False)
    reward_call: RewardCall = field(init=False)


@dataclass
class ScoringCall:
    """
    What TRL's scoring method is called for, where its arguments do not say so. It is said of the first call alone,
    which is the policy's; another one, of the reference model, runs all rows as TRL does.

    Args:
        rollout ([`Rollout`], *optional*): The rollout batch that TRL generates and scores.
        micro_batch (`dict`, *optional*): The micro-batch whose loss TRL computes.
        all_rows (`bool`): Whether the loss reads rows without advantage, too.
        recorder ([`Recorder`], *optional*): Records the policy's hidden states, log-probabilities and entropies.
        may_wait (`bool`): Whether TRL reads nothing of what the call returns, so that it may be scored afterwards.

    Attributes:
        waits (`bool`): Whether TRL got a placeholder.
    """

    rollout: Rollout | None = None
    micro_batch: dict[str, Any] | None = None
    all_rows: bool = False
    recorder: Recorder | None = None
    may_wait: bool = False
    waits: bool = field(default=False, init=False)
    _is_over: bool = field(default=False, init=False)

    def taken(self) -> "ScoringCall":
        """This call if it is the first one, else a call of which nothing is said."""
        if self._is_over:
            return ScoringCall()
        self._is_over = True
        return self


class HasScoringCall(Protocol):
    scoring_call: ScoringCall


@contextmanager
def scoring(trainer: HasScoringCall, call: ScoringCall) -> Iterator[None]:
    """The context in which TRL's scoring method is called for this."""
    outer = trainer.scoring_call
    trainer.scoring_call = call
    try:
        yield
    finally:
        trainer.scoring_call = outer
