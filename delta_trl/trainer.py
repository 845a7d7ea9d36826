"""
`DeltaGRPOTrainer`: TRL's `GRPOTrainer` with DelTA token coefficients (arXiv 2605.21467).

Three overrides, no method copied:
- `_get_per_token_logps_and_entropies` records the hidden states of TRL's own old-log-prob pass, if there is one;
- `_generate_and_score_completions` turns them into the batch entry `"token_coefficients"`, once per rollout batch;
- `_compute_loss` multiplies the advantages by them.
"""

import inspect
import textwrap
import time

import torch
from accelerate.logging import get_logger
from accelerate.utils import gather_object, is_peft_model
from torch import nn
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import get_config_model_id

from .config import CreditArguments, DeltaGRPOConfig
from .credit import OutputRowGradients, centroid_cosine, token_coefficients
from .recording import HiddenStateRecorder
from .reward_errors import explain_failures


logger = get_logger(__name__)


class DeltaGRPOTrainer(GRPOTrainer):
    """
    Drop-in for [`~trl.GRPOTrainer`] that reweights every token's loss with its DelTA coefficient.

    Takes the arguments of [`~trl.GRPOTrainer`]. With a plain [`~trl.GRPOConfig`] as `args` the credit options keep
    their defaults and everything else is as given. Evaluation is `GRPOTrainer`'s.

    When TRL scores old log-probabilities itself (several optimiser steps per rollout batch, or vLLM with
    importance-sampling correction), coefficients cost no forward pass; otherwise one no-grad pass per rollout batch.
    Logs under `credit/` the fields of [`~delta_trl.credit.token_coefficients`]'s `statistics`, `centroid_cosine`,
    `seconds` and `extra_forward_passes`.

    Raises:
        ValueError: At construction, if the model's backbone cannot be found.

    Example:

    ```python
    >>> from datasets import load_dataset
    >>> from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
    >>> from delta_trl.rewards import math_reward

    >>> trainer = DeltaGRPOTrainer(
    ...     model="Qwen/Qwen3-0.6B",
    ...     reward_funcs=math_reward,
    ...     args=DeltaGRPOConfig(output_dir="Qwen3-0.6B-DelTA"),
    ...     train_dataset=load_dataset("trl-lib/DeepMath-103K", split="train"),
    ... )
    >>> trainer.train()
    ```
    """

    _tag_names = ["trl", "grpo", "delta"]  # noqa: RUF012 (as in TRL)
    _name = "DelTA"
    _paper = {  # noqa: RUF012
        "title": "DelTA: Discriminative Token Credit Assignment for Reinforcement Learning from Verifiable Rewards",
        "id": "2605.21467",
        "citation": textwrap.dedent("""\
            @article{zhang2026delta,
                title        = {{DelTA: Discriminative Token Credit Assignment for Reinforcement Learning from Verifiable Rewards}},
                author       = {Kaiyi Zhang and Wei Wu and Yankai Lin},
                year         = 2026,
                eprint       = {arXiv:2605.21467},
            }"""),  # noqa: E501
    }

    def __init__(self, model, reward_funcs=None, args: GRPOConfig | None = None, *other_args, **kwargs):
        if args is None:
            name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = DeltaGRPOConfig(f"{name.split('/')[-1]}-DelTA")
        self.credit_args = args if isinstance(args, CreditArguments) else CreditArguments()
        # armed for one rollout at a time, see `_generate_and_score_completions`
        self._recorder: HiddenStateRecorder | None = None
        super().__init__(model, reward_funcs, args, *other_args, **kwargs)
        self.reward_funcs = [
            explain_failures(func, name) for func, name in zip(self.reward_funcs, self.reward_func_names, strict=True)
        ]
        if self.credit_args.token_credit != "none":
            self._find_backbone()
        self._warn_about_checkpoints_inside_a_rollout()

    def _find_backbone(self) -> nn.Module:
        """The module whose last hidden state enters the LM head; TRL's fused LM head calls the same one."""
        model = self.accelerator.unwrap_model(self.model)
        if is_peft_model(model):
            model = model.get_base_model()  # `PeftModel.base_model` is the tuner
        backbone = getattr(model, "base_model", model)
        if backbone is model or model.get_output_embeddings() is None:
            raise ValueError(
                f"DeltaGRPOTrainer needs the hidden states that enter the LM head, but {type(model).__name__} shows "
                "no backbone and LM head: `model.base_model` must be a submodule and `model.get_output_embeddings()` "
                "must return the head. Use a causal language model of transformers (AutoModelForCausalLM), set "
                "`base_model_prefix` on your model class to the attribute that holds the backbone, or train without "
                'token credit: `token_credit="none"`.'
            )
        return backbone

    def _warn_about_checkpoints_inside_a_rollout(self):
        args = self.args
        steps_per_rollout = args.steps_per_generation * args.num_iterations / args.gradient_accumulation_steps
        if args.save_strategy == "steps" and args.save_steps >= 1 and args.save_steps % steps_per_rollout:
            logger.warning(
                f"save_steps={args.save_steps} is not a multiple of the {steps_per_rollout:g} optimiser steps that "
                "share a rollout batch (steps_per_generation * num_iterations / gradient_accumulation_steps). TRL "
                "does not save a rollout batch in progress, so a run resumed from such a checkpoint drops the rest of "
                "it and diverges from an uninterrupted run."
            )

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, *args, **kwargs):
        forward = super()._get_per_token_logps_and_entropies
        recorder, self._recorder = self._recorder, None  # only the first scoring call of a rollout
        if recorder is None:
            return forward(model, input_ids, attention_mask, logits_to_keep, *args, **kwargs)
        with recorder.recording(self._find_backbone(), attention_mask[:, -logits_to_keep:]):
            output = forward(model, input_ids, attention_mask, logits_to_keep, *args, **kwargs)
        recorder.log_probs = output[0]
        return output

    def _generate_and_score_completions(self, inputs):
        if not self.model.training or self.credit_args.token_credit == "none":
            batch = super()._generate_and_score_completions(inputs)
            mean_coefficients = [None] * len(inputs)
        else:
            self._recorder = recorder = HiddenStateRecorder()
            batch = super()._generate_and_score_completions(inputs)
            self._recorder = None
            coefficients = batch["token_coefficients"] = self._credit_tokens(batch, recorder)
            means = coefficients.sum(dim=1) / _valid_tokens(batch).sum(dim=1).clamp(min=1)
            mean_coefficients = [round(mean, 4) for mean in means.tolist()]
        if self.credit_args.token_credit != "none":
            # TRL's column "advantage" was filled before; what trains is advantage × coefficient
            self._logs["extra"]["mean_token_coefficient"].extend(gather_object(mean_coefficients))
        return batch

    def _credit_tokens(self, batch: dict, recorder: HiddenStateRecorder) -> torch.Tensor:  # (B, T)
        start = time.perf_counter()
        # The first scoring call was the policy's own only if its log-probs are the batch's: it may also have been the
        # reference model's, even on the same modules (PEFT with the adapter disabled).
        free = recorder.complete and recorder.log_probs is batch.get("old_per_token_logps")
        if not free:
            recorder = self._score_rollout(batch)

        valid = _valid_tokens(batch)  # (B, T)
        hidden = recorder.hidden_states  # one row per completion token, those of tools included
        if "tool_mask" in batch:
            hidden = hidden[valid[batch["completion_mask"].bool()]]
        gradients = OutputRowGradients(hidden, recorder.log_probs[valid])  # N = valid.sum()
        advantages = batch["advantages"][:, None].expand_as(valid)[valid]  # (N,)
        statistics = {"centroid_cosine": centroid_cosine(gradients, advantages)}
        credit = token_coefficients(
            gradients,
            advantages,
            refinement_steps=self.credit_args.refinement_steps,
            lambda_min=self.credit_args.lambda_min,
            lambda_max=self.credit_args.lambda_max,
            normalize=self.credit_args.normalize_coefficients,
            statistics=statistics,
        )
        coefficients = valid.to(torch.float32).masked_scatter_(valid, credit)
        statistics["extra_forward_passes"] = float(not free)
        statistics["seconds"] = time.perf_counter() - start
        for name, value in statistics.items():
            self._metrics["train"][f"credit/{name}"].append(value)
        return coefficients

    def _score_rollout(self, batch: dict) -> HiddenStateRecorder:
        """One no-grad pass of the policy over the rollout batch, in micro-batches, as TRL scores old log-probs."""
        self._recorder = recorder = HiddenStateRecorder()
        parameters = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
                batch["completion_ids"].size(1),
                batch_size=self.args.per_device_train_batch_size,
                **{key: batch[key] for key in parameters if key in batch},  # multimodal inputs
            )
        if not recorder.complete:
            raise RuntimeError(
                f"The forward hook on {type(self._find_backbone()).__name__} did not see every row of the rollout "
                "batch. Hooks do not fire on a module that torch.compile has already compiled: construct the trainer "
                "with the uncompiled model (`torch_compile` in the training arguments is fine)."
            )
        return recorder

    def _compute_loss(self, model, inputs):
        if "token_coefficients" in inputs:
            # TRL accepts (B, T) advantages from subclasses; λ̄ > 0 commutes with the clipped surrogate's min
            advantages = inputs["advantages"][:, None] * inputs["token_coefficients"]
            inputs = {**inputs, "advantages": advantages}
        return super()._compute_loss(model, inputs)


def _valid_tokens(batch: dict) -> torch.Tensor:
    """The tokens that the loss counts, (B, T): sampled by the policy, neither padding nor a tool's."""
    mask = batch["completion_mask"].bool()
    return mask & batch["tool_mask"].bool() if "tool_mask" in batch else mask
