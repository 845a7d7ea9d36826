"""Configuration of [`DeltaGRPOTrainer`]: TRL's `GRPOConfig` plus what belongs to token credit."""

from dataclasses import dataclass

from trl import GRPOConfig

from ..arguments.credit import CreditArguments
from ..arguments.parser import documented
from ..credit import TokenCredit
from ..credit.names import find_rule
from .checks import refuse_divided_batches, refuse_ignored_credit


# TRL names the losses in the option's help alone
LOSSES = GRPOConfig.__dataclass_fields__["loss_type"].metadata["help"]


@documented
@dataclass
class DeltaGRPOConfig(CreditArguments, GRPOConfig):
    """
    [`~trl.GRPOConfig`] plus the options of [`CreditArguments`].

    Args:
        epsilon_high (`float`, *optional*, defaults to `0.28`):
            Upper clip bound, ε_high. Of the probability ratio, 1 plus this: 0.28 is DAPO's and the paper's; TRL's
            default is `epsilon`.
        activation_checkpointing (`bool`, *optional*, defaults to `gradient_checkpointing`, which TRL sets to `True`):
            Recompute activations in the backward pass. transformers' name from 5.23 on; vLLM still wants older ones.

    Raises:
        ValueError: Also if the loss would ignore token credit, or accelerate would divide batches.
    """

    epsilon_high: float | None = 0.28
    activation_checkpointing: bool | None = None

    def __post_init__(self):
        CreditArguments.__post_init__(self)
        # Both names: older transformers read the old one, newer ones warn of it where the new one is not set.
        if self.activation_checkpointing is None:
            self.activation_checkpointing = self.gradient_checkpointing
        self.gradient_checkpointing: bool | None = self.activation_checkpointing
        GRPOConfig.__post_init__(self)
        if f"'{self.loss_type}'" not in LOSSES:
            raise ValueError(
                f"loss_type={self.loss_type!r}: expected one of TRL's. GSPO is importance_sampling_level='sequence'."
            )
        refuse_divided_batches(self)
        kind, _ = find_rule(self.token_credit, self.token_credit_kwargs)
        refuse_ignored_credit(self, gives_credit=kind is not TokenCredit)
