"""Log-probabilities in full precision under FSDP2, for any `GRPOTrainer`."""

import dataclasses

from trl import GRPOTrainer


class FSDPPrecision(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that keeps log-probabilities in float32 under FSDP2.

    FSDP2's mixed precision casts what the model returns, log-probabilities included. bfloat16 keeps two or three of
    their digits, so that importance ratios and clipping would depend on rounding. This class removes the cast of the
    outputs; the model computes as before.
    """

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()  # before TRL shards a reference model
        if not self.accelerator.is_fsdp2:
            return
        plugin = self.accelerator.state.fsdp_plugin
        if plugin.mixed_precision_policy is not None:
            plugin.mixed_precision_policy = dataclasses.replace(plugin.mixed_precision_policy, output_dtype=None)
