"""Checks for reward functions that fail and for rewards without variance, for any `GRPOTrainer`."""

import torch
from accelerate.logging import get_logger

from ..rewards.failures import explain_failures, without_middle
from ..rewards.grader.extraction import message_text
from .contrast import KnowsRewards, has_contrast


logger = get_logger(__name__)

PATIENCE = 3  # rollout batches in a row


class RewardChecks(KnowsRewards):
    """
    [`~trl.GRPOTrainer`] whose reward functions say which of them failed and on which completion. Warns about zero
    reward variance: where all responses to a prompt have the same reward, their advantages are 0.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._batches_without_variance = 0  # in a row
        self._warned_of_variance = False

    def _calculate_rewards(self, *args, **kwargs):
        given = self.reward_funcs  # which others may look at, and change
        self.reward_funcs = [explain_failures(*pair) for pair in zip(given, self.reward_func_names, strict=True)]
        try:
            return super()._calculate_rewards(*args, **kwargs)
        finally:
            self.reward_funcs = given

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if self.model.training:
            self._warn_of_zero_variance()
        return batch

    def _warn_of_zero_variance(self) -> None:
        """Warn once, after a few rollout batches in a row."""
        varies = has_contrast(self, self.last_rewards).any().item()
        self._batches_without_variance = 0 if varies else self._batches_without_variance + 1
        if self._batches_without_variance < PATIENCE or self._warned_of_variance:
            return
        self._warned_of_variance = True
        columns = zip(self.reward_func_names, self.last_rewards.T, strict=True)
        rewards = ", ".join(f"{name} {_describe(column)}" for name, column in columns)
        truncated = self._metrics["train"].get("completions/clipped_ratio")  # a subclass may not log it
        cut_off = (
            f"; {truncated[-1]:.0%} of the completions were cut off at max_completion_length" if truncated else ""
        )
        completion = message_text(self._logs["completion"][-len(self.last_rewards)])
        logger.warning(
            f"No group had responses with different rewards in {PATIENCE} rollout batches in a row: nothing was "
            f"learned from them. The last one's {len(self.last_rewards)} rewards: {rewards}{cut_off}. "
            f"One completion: {without_middle(completion, 400)!r}. "
            "Check that the completion has what the reward looks for (the prompt must ask for it) and that the "
            "reward's columns are right; raise max_completion_length if answers are cut off; choose prompts that the "
            "model solves sometimes."
        )


def _describe(rewards: torch.Tensor) -> str:
    known = rewards[~rewards.isnan()]
    if not len(known):
        return "all None"
    low, high = known.min().item(), known.max().item()
    values = f"all {low:g}" if low == high else f"{low:g} to {high:g}"
    missing = len(rewards) - len(known)
    return values + (f" ({missing} None)" if missing else "")
