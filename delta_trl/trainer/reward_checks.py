"""Reward functions that fail say which they are and on which completion, for any `GRPOTrainer`."""

from trl import GRPOTrainer

from ..rewards.failures import explain_failures


class RewardChecks(GRPOTrainer):
    """[`~trl.GRPOTrainer`] whose reward functions say which of them failed and on which completion."""

    def _calculate_rewards(self, *args, **kwargs):
        given = self.reward_funcs  # restored below: other code reads this list
        self.reward_funcs = [explain_failures(*pair) for pair in zip(given, self.reward_func_names, strict=True)]
        try:
            return super()._calculate_rewards(*args, **kwargs)
        finally:
            self.reward_funcs = given
