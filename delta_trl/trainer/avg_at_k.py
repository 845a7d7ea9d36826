"""avg@k in evaluations during training, for any `GRPOTrainer`."""

import torch
from transformers.trainer_utils import has_length

from ..evaluation.metrics import avg_at_k
from .contrast import KnowsRewards


class ReportsAvgAtK(KnowsRewards):
    """
    [`~trl.GRPOTrainer`] whose evaluations also report `eval_avg_at_k`: the first reward function's mean over the
    `num_generations_eval` completions of each problem, averaged over problems.
    """

    # during an evaluation: the first reward function's rewards of each batch, of all processes
    _eval_rewards: list[torch.Tensor] | None = None

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if self._eval_rewards is not None:
            self._eval_rewards.append(self.last_rewards[:, 0])
        return batch

    def evaluation_loop(self, dataloader, *args, metric_key_prefix="eval", **kwargs):
        self._eval_rewards, k = [], self.num_generations_eval
        try:
            output = super().evaluation_loop(dataloader, *args, metric_key_prefix=metric_key_prefix, **kwargs)
        finally:
            batches, self._eval_rewards = self._eval_rewards, None
        if not batches:  # `dataloader_drop_last` has left none
            return output
        rewards = torch.cat(batches).view(-1, k)  # unscorable completions are NaN
        if has_length(dataloader.dataset):
            rewards = rewards[: len(dataloader.dataset)]  # several processes fill up the last batch with repeated rows
        output.metrics[f"{metric_key_prefix}_avg_at_k"] = avg_at_k(rewards.cpu().numpy())
        return output
