"""What scoring asks of a trainer's model: the model itself, its dtype, and whether a batch holds more than text."""

import inspect

import torch
from torch import nn
from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer

from .recorder import without_adapter


TEXT = {"model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy", "compute_aux_loss"}
ARGUMENTS = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
# Those of TRL's scoring method that stand for anything but text, also those that a newer TRL has
MULTIMODAL = tuple(name for name in ARGUMENTS if name not in {"self", *TEXT})


def has_images(inputs: dict) -> bool:
    """Whether a batch or the arguments of a scoring call hold anything but text."""
    return any(inputs.get(name) is not None for name in MULTIMODAL)


def unwrapped(trainer: GRPOTrainer, model: nn.Module) -> nn.Module:
    """A model without wrappers of distributed training."""
    return trainer.accelerator.unwrap_model(model, keep_torch_compile=False)


def causal_model(trainer: GRPOTrainer) -> PreTrainedModel:
    """The causal language model in training, without wrappers of distributed training or PEFT."""
    return without_adapter(unwrapped(trainer, trainer.model))


def autocast_dtype(trainer: GRPOTrainer) -> torch.dtype | None:
    """The dtype of autocast; `None` if it is off."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(trainer.accelerator.mixed_precision)


def steps_of_rollout(args: GRPOConfig) -> float:
    """Optimiser steps that a rollout batch makes; below 1 if a step takes several rollout batches."""
    return args.steps_per_generation * args.num_iterations / args.gradient_accumulation_steps


def trl_scores_rollouts(args: GRPOConfig) -> bool:
    """Whether `GRPOTrainer` scores every rollout batch itself, for old log-probabilities."""
    backward_passes = args.steps_per_generation * args.num_iterations  # over one rollout batch
    policy_moves = args.gradient_accumulation_steps % backward_passes != 0  # while the rollout batch is in use
    return policy_moves or (args.use_vllm and args.vllm_importance_sampling_correction)
