"""Checks for reward functions that fail and for rewards without variance, for any `GRPOTrainer`."""

from accelerate.logging import get_logger

from ..rewards.failures import explain_failures
from .contrast import KeepsLastRewards, has_contrast


logger = get_logger(__name__)

PATIENCE = 3  # rollout batches in a row


class RewardChecks(KeepsLastRewards):
    """
    [`~trl.GRPOTrainer`] whose reward functions say which of them failed and on which completion. Warns about zero
    reward variance: where all responses to a prompt have the same reward, their advantages are 0.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._batches_without_variance = 0  # in a row
        self._warned_of_variance = False

    def _calculate_rewards(self, *args, **kwargs):
        given = self.reward_funcs  # restored below: other code reads this list
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
        logger.warning(
            f"No group had responses with different rewards in {PATIENCE} rollout batches in a row: nothing was "
            "learned from them. Look at the logged completions, and choose prompts that the model solves sometimes."
        )
