"""
Scoring completions with a trainer's model: the model itself, its dtype, the contexts in which it scores, and the
policy as a rule of token credit sees it, with its outputs for one rollout batch in few passes.
"""

import inspect
from typing import Any

import torch
from torch import nn
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

from ..credit import LMHead, PolicyOutputs, Responses
from .recorder import Recorder, backbone_of, without_adapter
from .texts import TokenTexts


NO_COLUMNS = {"prompt", "completion", "completion_ids"}  # TRL gives rewards these names for something else
SCORING = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies)
TEXT = {"model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy", "compute_aux_loss"}
# Arguments of TRL's scoring method that stand for anything but text, also those that a newer TRL has
MULTIMODAL = tuple(name for name in SCORING.parameters if name not in {"self", *TEXT})


def has_images(inputs: dict) -> bool:
    """Whether a batch or the arguments of a scoring call hold anything but text."""
    return any(inputs.get(name) is not None for name in MULTIMODAL)


def unwrapped(trainer: GRPOTrainer, model: nn.Module) -> nn.Module:
    """A model without wrappers of distributed training."""
    return trainer.accelerator.unwrap_model(model, keep_torch_compile=False)


def causal_model(trainer: GRPOTrainer) -> nn.Module:
    """The causal language model in training, without wrappers of distributed training or PEFT."""
    return without_adapter(unwrapped(trainer, trainer.model))


def autocast_dtype(trainer: GRPOTrainer) -> torch.dtype | None:
    """The dtype of autocast; `None` if it is off."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(trainer.accelerator.mixed_precision)


def in_order(batches: list[dict], order: torch.Tensor) -> dict:
    """One batch with the rows of all `batches`, in the order (B,). What is no tensor or list of rows stays."""
    whole = dict(batches[0])
    for name, value in whole.items():
        parts = [batch[name] for batch in batches]
        if isinstance(value, torch.Tensor) and value.ndim:
            whole[name] = torch.cat(parts)[order]
        elif isinstance(value, list):
            rows = [row for part in parts for row in part]
            whole[name] = [rows[i] for i in order.tolist()]
    return whole


def trl_scores_rollouts(args: GRPOConfig) -> bool:
    """Whether `GRPOTrainer` scores every rollout batch itself, for old log-probabilities."""
    backward_passes = args.steps_per_generation * args.num_iterations  # over one rollout batch
    policy_moves = args.gradient_accumulation_steps % backward_passes != 0  # while the rollout batch is in use
    return policy_moves or (args.use_vllm and args.vllm_importance_sampling_correction)


def new_recorder(trainer: Any, hidden: bool) -> Recorder:
    """A recorder for one scoring pass of a [`DeltaGRPOTrainer`], with hidden states or without."""
    backbone = backbone_of(causal_model(trainer)) if hidden else None
    return Recorder(backbone, trainer.credit_args.hidden_state_cache)


class RolloutPolicy:
    """
    The `policy` of a rollout batch's [`Tokens`]. Uses TRL's own scoring pass where TRL made one; makes further passes
    with the trainer's scoring method.

    Args:
        trainer ([`DeltaGRPOTrainer`]): The trainer.
        batch (`dict`): The rollout batch.
        recorded (`Recorder`): TRL's own pass over the completions, if it was recorded.

    Attributes:
        forward_passes (`int`): Forward passes over the rollout batch beyond TRL's own.
        known (`dict[str, torch.Tensor]`): What needs no further pass: `log_probs` and perhaps `entropies` (B, T).
    """

    def __init__(self, trainer: Any, batch: dict, recorded: Recorder):
        self.model = causal_model(trainer)
        self.dtype = autocast_dtype(trainer)
        self.micro_batch_size = trainer.args.per_device_train_batch_size
        self.forward_passes = 0
        self._trainer = trainer
        self._batch = batch
        # TRL's first scoring call was the policy's only if its log-probs are the batch's: it may also have been the
        # reference model's, even on the same modules (PEFT with the adapter disabled).
        self._pass: Recorder | None = None
        self.known = {}
        old = batch.get("old_per_token_logps")
        if old is not None:
            self.known["log_probs"] = old
            if recorded.log_probs is old:
                self.known["entropies"] = recorded.entropies
                self._pass = self._without_tools(recorded)

    def outputs(self, hidden: bool) -> PolicyOutputs:
        if self._pass is None or (hidden and self._pass.hidden is None):
            self._pass = self._score(hidden or self._trainer.token_credit.needs_hidden_states)
        return PolicyOutputs(self._pass.log_probs, self._pass.entropies, self._pass.hidden)

    def head(self) -> LMHead:
        return LMHead.of(self.model, self._trainer.temperature)

    def responses(self) -> Responses:
        inputs, prompts, completions, ids = self._trainer.last_reward_call
        columns: dict[str, Any] = {}
        for name in inputs[0]:
            if name not in NO_COLUMNS:
                columns[name] = [row[name] for row in inputs]
        columns["trainer_state"] = self._trainer.state
        if self._trainer.environments is not None:
            columns["environments"] = self._trainer.environments
        every_token = torch.ones_like(self._batch["completion_ids"])
        of_policy = self._batch.get("tool_mask", every_token)
        texts = TokenTexts(self._trainer._tokenizer)
        return texts.responses(prompts, completions, ids, of_policy.tolist(), columns)

    def log_probs_at(self, rows: torch.Tensor, length: int) -> torch.Tensor:
        log_probs, *_ = self._scored(rows)
        return log_probs[:, :length]

    def _scored(self, rows: torch.Tensor | None = None) -> tuple:
        """What TRL's scoring method returns for some rows of the batch, with their own images; by default for all."""
        trainer = self._trainer
        batch = self._batch
        if rows is not None:
            split = split_pixel_values_by_grid(batch)
            batch = unsplit_pixel_values_by_grid(in_order([split], rows))
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        length = batch["completion_ids"].size(1)
        return trainer._get_per_token_logps_and_entropies(
            trainer.model,
            ids,
            mask,
            length,
            batch_size=self.micro_batch_size,
            compute_entropy=True,
            **{name: batch[name] for name in MULTIMODAL if name in batch},
        )

    def _score(self, hidden: bool) -> Recorder:
        """Run and record one more pass over the rollout batch, in the context in which TRL scores it."""
        self.forward_passes += 1
        trainer = self._trainer
        recorder = new_recorder(trainer, hidden)
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs),
            trainer.recording(recorder),
        ):
            log_probs, entropies, _ = self._scored()
        is_whole = recorder.hidden is not None and recorder.log_probs.shape == log_probs.shape
        if hidden and not is_whole:
            raise RuntimeError(
                "Token credit did not see the hidden states of every row of the rollout batch. A subclass's "
                "_get_per_token_logps_and_entropies must give all rows to the base class in one call, and the model "
                "must not be compiled before the trainer is constructed (`torch_compile` in the training arguments is "
                "fine, but not with FSDP)."
            )
        recorder.log_probs = log_probs
        recorder.entropies = entropies
        return self._without_tools(recorder)

    def _without_tools(self, recorded: Recorder) -> Recorder:
        """A pass without the hidden states of a tool's text, which it has scored, too."""
        if "tool_mask" in self._batch and recorded.hidden is not None:
            scored = self._batch["completion_mask"].bool()
            recorded.hidden.keep_only(self._batch["tool_mask"][scored].bool())
        return recorded
