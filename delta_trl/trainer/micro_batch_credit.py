"""Credit of micro-batches, which depends on how the policy has moved since the rollout, for any `GRPOTrainer`."""

import math

import torch
from trl import GRPOTrainer

from ..credit import TokenCredit, Tokens, checked_credit


class MicroBatchCredit(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that calls a rule's `of_micro_batch` once TRL's loss has scored a micro-batch, and multiplies
    the advantages by its weights. The loss reads the advantages after that.

    Attributes:
        token_credit ([`~credit.TokenCredit`]): The rule.
    """

    token_credit = TokenCredit()
    # the micro-batch as the loss sees it; `None` outside the loss and after its first scoring call
    _micro_batch: dict | None = None

    def _compute_loss(self, model, inputs):
        if not (self.model.training and self.token_credit.credits_micro_batches):
            return super()._compute_loss(model, inputs)
        self._micro_batch = dict(inputs)
        try:
            return super()._compute_loss(model, self._micro_batch)
        finally:
            self._micro_batch = None

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        output = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        batch, self._micro_batch = self._micro_batch, None
        if batch is not None:
            self._weigh(batch, output[0].detach(), output[1].detach())
        return output

    def _weigh(self, batch: dict, log_probs: torch.Tensor, entropies: torch.Tensor) -> None:
        old = batch.get("old_per_token_logps", log_probs)  # absent while the policy is the rollout's
        tokens = Tokens.of_batch(batch, log_probs=log_probs, old_log_probs=old, entropies=entropies)
        credit = checked_credit(self.token_credit, "of_micro_batch", tokens)
        if credit is not None:
            batch["advantages"] = tokens.padded(credit.advantages)
            self._log_credit(credit.metrics)

    def _log_credit(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            if not math.isnan(value):  # undefined in a batch without contrast, say
                self._metrics["train"][f"credit/{name}"].append(value)
