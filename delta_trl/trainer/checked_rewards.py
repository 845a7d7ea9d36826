"""Reward functions that fail are named, and a run without any reward ends."""

from accelerate.logging import get_logger

from ..arguments.errors import UsageError
from ..rewards.failures import explain_failures
from .dynamic_sampling import DynamicSampling, stands_out


logger = get_logger(__name__)

PATIENCE = 3  # rollout batches in a row without any reward, after which the run ends
EQUAL = 10  # rollout batches in a row in which the rewards of each prompt are equal, after which it warns


class CheckedRewards(DynamicSampling):
    """
    [`~dynamic_sampling.DynamicSampling`] whose reward functions are checked, as in
    [`~rewards.failures.explain_failures`]. If no completion of `PATIENCE` rollout batches in a row gets a reward,
    nothing is trained: it raises `UsageError` in all processes. TRL itself logs a row of each such batch. If all
    completions of a prompt have the same reward in `EQUAL` rollout batches in a row, it warns once.
    """

    _batches_without_rewards = 0
    _batches_without_contrast = 0

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if self.model.training:
            self._watch(self.last_rewards)
        return batch

    def _calculate_rewards(self, *args, **kwargs):
        given = self.reward_funcs  # restored below: other code reads this list
        self.reward_funcs = [explain_failures(*pair) for pair in zip(given, self.reward_func_names, strict=True)]
        try:
            return super()._calculate_rewards(*args, **kwargs)
        finally:
            self.reward_funcs = given

    def _watch(self, rewards):  # of all processes; NaN is no reward
        has_contrast = stands_out(self, rewards).any()
        self._batches_without_rewards = self._batches_without_rewards + 1 if rewards.isnan().all() else 0
        self._batches_without_contrast = 0 if has_contrast else self._batches_without_contrast + 1
        if self._batches_without_contrast == EQUAL:
            self._warn_of_equal_rewards(rewards)
        if self._batches_without_rewards == PATIENCE:
            raise UsageError(
                f"{', '.join(self.reward_func_names)}: {PATIENCE} batches in a row got no reward, so nothing is "
                "trained. The log has a row of each. Check that its reference answer or tests can be used, and that "
                "what the reward needs works."
            )

    def _warn_of_equal_rewards(self, rewards):
        values = rewards.unique(dim=0)[:3].tolist()
        logger.warning(
            f"{', '.join(self.reward_func_names)}: in {EQUAL} rollout batches in a row, all completions of a prompt "
            f"had the same reward, so rewards taught nothing. The last ones had {values}. Prompts may be too hard or "
            "too easy, or completions too short for an answer (`max_completion_length`)."
        )
