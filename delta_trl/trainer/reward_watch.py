"""Rewards that teach nothing: a run without any, and one whose rewards are always equal."""

from collections.abc import Sequence

import torch
from accelerate.logging import get_logger

from ..arguments.errors import UsageError


logger = get_logger(__name__)

WITHOUT_REWARDS = 3  # rollout batches in a row without any reward, after which a command ends and the trainer warns
WITHOUT_CONTRAST = 10  # rollout batches in a row in which the rewards of each prompt are equal, after which it warns


class RewardWatch:
    """
    Counts rollout batches whose rewards teach nothing. If no completion of `WITHOUT_REWARDS` in a row gets a reward,
    nothing is trained: it warns once, or raises `UsageError` in all processes. TRL itself logs a row of each such
    batch. If all completions of a prompt have the same reward in `WITHOUT_CONTRAST` in a row, it warns once.

    Attributes:
        refuses (`bool`): Whether a run without rewards ends. Commands set it.
    """

    def __init__(self) -> None:
        self.refuses = False
        self._without_rewards = 0
        self._without_contrast = 0

    def observe(self, reward_names: Sequence[str], rewards: torch.Tensor, has_contrast: bool) -> None:
        """
        Count a rollout batch.

        Args:
            reward_names (`Sequence[str]`): What the reward functions are called.
            rewards (`torch.Tensor` of shape `(completions of all processes, functions)`): NaN is no reward.
            has_contrast (`bool`): Whether a completion has another reward than others of its prompt.
        """
        self._without_rewards = self._without_rewards + 1 if rewards.isnan().all() else 0
        self._without_contrast = 0 if has_contrast else self._without_contrast + 1
        names = ", ".join(reward_names)
        if self._without_contrast == WITHOUT_CONTRAST:
            values = rewards.unique(dim=0)[:3].tolist()
            logger.warning(
                f"{names}: in {WITHOUT_CONTRAST} rollout batches in a row, all completions of a prompt had the same "
                f"reward, so rewards taught nothing. The last ones had {values}. Prompts may be too hard or too easy, "
                "or completions too short for an answer (`max_completion_length`)."
            )
        if self._without_rewards == WITHOUT_REWARDS:
            problem = (
                f"{names}: {WITHOUT_REWARDS} batches in a row got no reward, so nothing is trained. The log has a row "
                "of each. Check that its reference answer or tests can be used, and that what the reward needs works."
            )
            if self.refuses:
                raise UsageError(problem)
            logger.warning(problem)
