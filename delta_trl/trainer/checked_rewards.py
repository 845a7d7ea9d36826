"""Reward functions that fail are named, and a run without any reward ends, for any `GRPOTrainer`."""

from trl import GRPOTrainer

from ..arguments.errors import UsageError
from ..rewards.failures import explain_failures


PATIENCE = 3  # batches of completions in a row without any reward, after which the run ends


class CheckedRewards(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] whose reward functions are checked, as in [`~rewards.failures.explain_failures`]. If no
    completion of `PATIENCE` batches in a row gets a reward, nothing is trained: it raises `UsageError` in all
    processes. TRL itself logs a row of each such batch.
    """

    _batches_without_rewards = 0

    def _calculate_rewards(self, *args, **kwargs):
        given = self.reward_funcs  # restored below: other code reads this list
        self.reward_funcs = [explain_failures(*pair) for pair in zip(given, self.reward_func_names, strict=True)]
        try:
            rewards = super()._calculate_rewards(*args, **kwargs)  # of all processes; NaN is no reward
        finally:
            self.reward_funcs = given
        if self.model.training:
            self._batches_without_rewards = self._batches_without_rewards + 1 if rewards.isnan().all() else 0
        if self._batches_without_rewards == PATIENCE:
            raise UsageError(
                f"{', '.join(self.reward_func_names)}: {PATIENCE} batches in a row got no reward, so nothing is "
                "trained. The log has a row of each. Check that its reference answer or tests can be used, and that "
                "what the reward needs works."
            )
        return rewards
