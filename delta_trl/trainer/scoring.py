"""
What scoring calls of a trainer need: which arguments are no text, the model itself, its dtype, the contexts in which
it scores.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile

import torch
from accelerate.utils import is_peft_model
from torch import nn
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer import utils as trl_utils


TEXT = (
    *("self", "model", "input_ids", "attention_mask", "logits_to_keep"),
    *("batch_size", "compute_entropy", "compute_aux_loss"),
)
# Arguments of TRL's scoring method that stand for anything but text, also those that a newer TRL has
MULTIMODAL = tuple(
    name for name in inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters if name not in TEXT
)


def has_images(inputs: dict) -> bool:
    """Whether a batch or the arguments of a scoring call hold anything but text."""
    return any(inputs.get(name) is not None for name in MULTIMODAL)


def causal_model(trainer: GRPOTrainer, model: nn.Module | None = None) -> nn.Module:
    """A causal language model, by default the one in training, without wrappers of distributed training or PEFT."""
    model = trainer.accelerator.unwrap_model(trainer.model if model is None else model, keep_torch_compile=False)
    return model.get_base_model() if is_peft_model(model) else model


def autocast_dtype(trainer: GRPOTrainer) -> torch.dtype | None:
    """The dtype of autocast; `None` if it is off."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(trainer.accelerator.mixed_precision)


def overridden(trainer_class: type[GRPOTrainer], names: set[str]) -> list[Callable]:
    """The methods of these names with which classes outside this package change `GRPOTrainer`."""
    package = __name__.split(".")[0]
    classes = takewhile(lambda kind: kind is not GRPOTrainer, trainer_class.__mro__)
    others = [vars(kind) for kind in classes if kind.__module__.split(".")[0] != package]
    return [methods[name] for methods in others for name in names.intersection(methods)]


@contextmanager
def rollout_scoring(trainer: GRPOTrainer) -> Iterator[None]:
    """The context in which TRL scores rollouts: no gradients, and no gradient checkpointing."""
    with torch.no_grad(), disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs):
        yield


@contextmanager
def only_labels_in_lm_head(device: torch.device) -> Iterator[None]:
    """
    The context in which TRL computes log-probs of completion tokens alone. On a GPU it always does so. On a CPU, its
    LM head computes those of prompts and padding as well, and hides them, which a large vocabulary makes slow. A TRL
    that asks otherwise than by `_use_triton` stays as it is.
    """
    before = getattr(trl_utils, "_use_triton", None)
    if device.type != "cpu" or before is None:
        yield
        return
    trl_utils._use_triton = lambda device: True  # in this module, it decides about the labels and nothing else
    try:
        yield
    finally:
        trl_utils._use_triton = before
