"""Updates that are not finite are skipped, for any `GRPOTrainer`: a single NaN would end up in every weight."""

import dataclasses
import math

import torch
from accelerate.logging import get_logger
from trl import GRPOTrainer


logger = get_logger(__name__)

PATIENCE = 5  # skipped updates in a row, after which the run ends


class FiniteUpdates(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that skips an update whose gradients are not finite on any process, as DelTA's authors do, and
    never saves weights that are not finite. The metric `skipped_updates` counts skipped updates. After `PATIENCE` of
    them in a row, it saves a checkpoint and raises. Under FSDP2, log-probabilities stay float32.

    What is not covered: float16, where the loss scaler skips updates; weights that DeepSpeed offloads to NVMe.
    """

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()  # before TRL shards a reference model
        deepspeed = self.accelerator.state.deepspeed_plugin
        # DeepSpeed skips an update by itself if told to in bfloat16, and always in float32
        if deepspeed is not None and "bf16" in deepspeed.deepspeed_config:
            deepspeed.deepspeed_config["bf16"]["check_grad_overflow"] = True
        fsdp = self.accelerator.state.fsdp_plugin if self.accelerator.is_fsdp2 else None
        if fsdp is not None and fsdp.mixed_precision_policy is not None:
            # FSDP2 casts what the model returns: bfloat16 log-probabilities have two or three digits
            fsdp.mixed_precision_policy = dataclasses.replace(fsdp.mixed_precision_policy, output_dtype=None)

    def train(self, *args, **kwargs):
        self._skipped_in_a_row = 0  # of this training
        return super().train(*args, **kwargs)

    def _get_grad_norm(self, model, grad_norm=None):
        norm = super()._get_grad_norm(model, grad_norm)  # over all processes; `inf` if DeepSpeed skipped the update
        if norm is None or self.accelerator.mixed_precision == "fp16":
            return norm
        is_finite = math.isfinite(norm)
        self._metrics["train"]["skipped_updates"].append(float(not is_finite))
        self._skipped_in_a_row = 0 if is_finite else self._skipped_in_a_row + 1
        if not is_finite:
            model.zero_grad()  # optimisers leave parameters without a gradient as they are
            self._warn(norm)
        return norm

    def _warn(self, norm: float | torch.Tensor) -> None:
        step = self.state.global_step + 1
        logger.warning(f"Step {step}: the norm of the gradients is {float(norm)}. The update is skipped.")
        if self._skipped_in_a_row == PATIENCE:
            self._save_checkpoint(self.model, trial=None)
            self.accelerator.wait_for_everyone()  # a process that fails ends the others, which may still be writing
            raise FloatingPointError(
                f"No finite gradients in {PATIENCE} updates in a row, up to step {step}. The weights from before are "
                f"in {self.args.output_dir}/checkpoint-{step - 1}. Lower the learning rate, or look for a reward or "
                "log-probability that is not finite."
            )

    def _save_checkpoint(self, model, trial):
        # what this process holds of a parameter: the parameter itself is empty under ZeRO-3, and whole under FSDP2
        shards = [getattr(p, "ds_tensor", getattr(p, "_local_tensor", p)) for p in self.model.parameters()]
        finite = all(bool(shard.isfinite().all()) for shard in shards)
        if not self.accelerator.gather(torch.tensor([finite], device=self.accelerator.device)).all():
            raise FloatingPointError(
                f"Step {self.state.global_step}: the weights are not finite, and were not saved. Resume from the last "
                "checkpoint, with a lower learning rate."
            )
        super()._save_checkpoint(model, trial)
