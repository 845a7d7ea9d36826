"""
`DeltaGRPOTrainer`: TRL's `GRPOTrainer` with DelTA token coefficients (arXiv 2605.21467).

Three overrides, no method copied:
- `_get_per_token_logps_and_entropies` records the hidden states of TRL's own old-log-prob pass, if there is one;
- `_generate_and_score_completions` turns them into the batch entry `"token_coefficients"`, once per rollout batch;
- `_compute_loss` multiplies the advantages by them.

With `log_token_credit`, `token_log` records them.
"""

import inspect
import json
import textwrap
import time
from pathlib import Path

import torch
from accelerate.logging import get_logger
from accelerate.utils import gather_object, is_peft_model
from torch import nn
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import get_config_model_id

from .checkpoints import optimiser_steps_per_rollout, saves_inside_a_rollout
from .config import CreditArguments, DeltaGRPOConfig
from .credit import (
    FullGradients,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    TokenGradients,
    TopKHiddenGradients,
    centroid_cosine,
    coefficient_statistics,
    fipo_weights,
    group_coefficients,
    random_coefficients,
    select_tokens,
    side_mean,
    token_coefficients,
)
from .recording import HiddenStateRecorder
from .reward_errors import explain_failures
from .token_log import TokenLog


logger = get_logger(__name__)

SCORING_PARAMETERS = tuple(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
CREDIT_STATE = "credit_state.json"  # in a checkpoint: the kept temperatures


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
        # the batch whose loss is being computed, while FIPO waits for its log-probs, see `_compute_loss`
        self._fipo_inputs: dict | None = None
        # of the present rollout batch, for the token log: rewards of all processes' rows by function, and
        # log-probabilities and entropies of the last recorded pass, which is the policy's once there are coefficients
        self._rewards: torch.Tensor | None = None
        self._scores: tuple[torch.Tensor, torch.Tensor] | None = None
        super().__init__(model, reward_funcs, args, *other_args, **kwargs)
        self.reward_funcs = [
            explain_failures(func, name) for func, name in zip(self.reward_funcs, self.reward_func_names, strict=True)
        ]
        # γ₊ and γ₋ of the first rollout batch, kept with `temperature_mode="initial"`
        self._temperatures: tuple[float, float] | None = None
        self._checked_lm_head = False
        if self.credit_args.weighs_rollouts:
            self._find_backbone()
            self._refuse_what_cannot_work()
        self._warn_about_checkpoints_inside_a_rollout()
        self._token_log = TokenLog(self) if self.credit_args.log_token_credit else None
        if self._token_log:
            self.add_callback(self._token_log)

    def _policy(self) -> nn.Module:
        """The causal language model itself, without wrappers of distributed training or PEFT."""
        model = self.accelerator.unwrap_model(self.model)
        return model.get_base_model() if is_peft_model(model) else model

    def _find_backbone(self) -> nn.Module:
        """The module whose last hidden state enters the LM head; TRL's fused LM head calls the same one."""
        model = self._policy()
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

    def _refuse_what_cannot_work(self):
        gradient, args = self.credit_args.token_gradient, self.args
        zero3 = args.deepspeed_plugin is not None and args.deepspeed_plugin.zero_stage == 3
        if gradient != "output_row" and zero3:
            raise ValueError(
                f"token_gradient={gradient!r} does not work with DeepSpeed ZeRO-3, which holds no whole parameter. "
                "Use ZeRO-2, or token_gradient='output_row'."
            )
        if gradient != "output_row" and self.is_fsdp_enabled and not self.accelerator.is_fsdp2:
            raise ValueError(
                f"token_gradient={gradient!r} does not work with FSDP1, which hides the parameters. Set "
                "fsdp_version: 2 in the accelerate config, or token_gradient='output_row'."
            )
        if gradient != "full":
            return
        forward_mode = self.credit_args.full_gradient_estimator == "forward"
        if self.is_fsdp_enabled and (forward_mode or args.gradient_accumulation_steps > 1):
            raise ValueError(
                "token_gradient='full' works under FSDP with full_gradient_estimator='difference' and "
                "gradient_accumulation_steps=1 only: forward mode cannot swap shards, and within an accumulation FSDP "
                "does not reduce gradients."
            )
        if forward_mode and args.gradient_checkpointing and is_peft_model(self.model):
            raise ValueError(
                "full_gradient_estimator='forward' does not work on LoRA with gradient checkpointing: its input hook "
                "has no forward derivative. Use full_gradient_estimator='difference' or gradient_checkpointing=False."
            )
        if self._is_vlm:
            raise ValueError("token_gradient='full' supports text-only models. Use token_gradient='output_row'.")
        if args.gradient_checkpointing and (args.gradient_checkpointing_kwargs or {}).get("use_reentrant"):
            raise ValueError(
                "token_gradient='full' does not work with reentrant gradient checkpointing, which only supports "
                "`backward`. Set gradient_checkpointing_kwargs: {use_reentrant: false}."
            )

    def _warn_about_checkpoints_inside_a_rollout(self):
        args = self.args
        if saves_inside_a_rollout(args):
            steps = optimiser_steps_per_rollout(args)
            logger.warning(
                f"save_steps={args.save_steps} is not a multiple of the {steps:g} optimiser steps that "
                "share a rollout batch (steps_per_generation * num_iterations / gradient_accumulation_steps). TRL "
                "does not save a rollout batch in progress, so a run resumed from such a checkpoint drops the rest of "
                "it and diverges from an uninterrupted run."
            )

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, *args, **kwargs):
        forward = super()._get_per_token_logps_and_entropies
        recorder, self._recorder = self._recorder, None  # only the first scoring call of a rollout
        if recorder is None:
            output = forward(model, input_ids, attention_mask, logits_to_keep, *args, **kwargs)
            if self._fipo_inputs is not None:
                self._weigh_by_future(self._fipo_inputs, output[0])
            return output
        if self._token_log and model is not self.ref_model:
            kwargs["compute_entropy"] = True  # the fused LM head of the policy does so anyway
        with recorder.recording(self._find_backbone(), attention_mask[:, -logits_to_keep:]):
            output = forward(model, input_ids, attention_mask, logits_to_keep, *args, **kwargs)
        recorder.log_probs = output[0]
        self._scores = output[:2]
        return output

    def _calculate_rewards(self, *args, **kwargs):
        self._rewards = super()._calculate_rewards(*args, **kwargs)
        return self._rewards

    def _generate_and_score_completions(self, inputs):
        if not self.model.training or not self.credit_args.weighs_rollouts:
            batch = super()._generate_and_score_completions(inputs)
            coefficient_means = trained_advantages = [None] * len(inputs)
        else:
            recorder = HiddenStateRecorder()
            self._recorder = recorder if self.credit_args.reads_hidden_states else None
            self._scores = None
            batch = super()._generate_and_score_completions(inputs)
            self._recorder = None
            coefficients = batch["token_coefficients"] = self._credit_tokens(batch, recorder)
            means = coefficients.sum(dim=1) / _valid_tokens(batch).sum(dim=1).clamp(min=1)
            coefficient_means = [round(mean, 4) for mean in means.tolist()]
            trained_advantages = [round(mean, 4) for mean in (batch["advantages"] * means).tolist()]
            if self._token_log:
                self._token_log.observe(batch, _valid_tokens(batch), self._rewards, self._scores)
        if self.credit_args.weighs_rollouts:
            # TRL's column "advantage" was filled before; what trains is advantage × coefficient
            self._logs["extra"]["mean_token_coefficient"].extend(gather_object(coefficient_means))
            self._logs["extra"]["trained_advantage"].extend(gather_object(trained_advantages))
        return batch

    def _credit_tokens(self, batch: dict, recorder: HiddenStateRecorder) -> torch.Tensor:  # (B, T)
        start = time.perf_counter()
        options = self.credit_args
        valid = _valid_tokens(batch)  # (B, T)
        advantages = batch["advantages"][:, None].expand_as(valid)[valid]  # (N,)
        statistics = {"extra_forward_passes": 0.0}
        if options.token_credit == "random":
            credit = random_coefficients(
                advantages, options.lambda_min, options.lambda_max, options.normalize_coefficients
            )
        else:
            credit = self._contrast(self._gradients(batch, recorder, valid, statistics), batch, advantages, statistics)
        if options.token_credit == "side_mean":
            credit = side_mean(credit, advantages)
        if not statistics.get("neutral"):  # else there is nothing to select by
            credit = select_tokens(
                credit,
                advantages,
                options.token_selection,
                options.token_selection_fraction,
                options.normalize_coefficients,
            )
        statistics |= coefficient_statistics(credit, advantages)
        statistics["seconds"] = time.perf_counter() - start
        for name, value in statistics.items():
            self._metrics["train"][f"credit/{name}"].append(value)
        return valid.to(torch.float32).masked_scatter_(valid, credit)

    def _contrast(
        self, gradients: TokenGradients, batch: dict, advantages: torch.Tensor, statistics: dict
    ) -> torch.Tensor:  # (N,)
        """DelTA's coefficients of the rollout batch, or those of an ablation of its margins."""
        options = self.credit_args
        shared = {
            "refinement_steps": options.refinement_steps,
            "lambda_min": options.lambda_min,
            "lambda_max": options.lambda_max,
            "normalize": options.normalize_coefficients,
            "assignment": options.assignment,
            "margin": "within_side" if options.token_credit == "within_side" else "contrast",
            "balance_sides": options.balance_sides,
            "statistics": statistics,
        }
        if options.token_gradient != "full":  # there it would cost two backward passes
            statistics["centroid_cosine"] = centroid_cosine(gradients, advantages)
        if options.centroid_scope == "group":
            valid = _valid_tokens(batch)
            first_row = self.accelerator.process_index * len(valid)
            rows = first_row + torch.arange(len(valid), device=valid.device)
            groups = (rows // self.num_generations)[:, None].expand_as(valid)[valid]
            n_groups = self.accelerator.num_processes * len(valid) // self.num_generations
            return group_coefficients(gradients, advantages, groups, n_groups, **shared)
        coefficients = token_coefficients(gradients, advantages, temperatures=self._temperatures, **shared)
        if options.token_gradient == "full":
            statistics["extra_forward_passes"] = float(gradients.forward_passes)
        if options.temperature_mode == "initial" and self._temperatures is None and not statistics["neutral"]:
            self._temperatures = (statistics["temperature_positive"], statistics["temperature_negative"])
        return coefficients

    def _gradients(
        self, batch: dict, recorder: HiddenStateRecorder, valid: torch.Tensor, statistics: dict
    ) -> TokenGradients:
        """What stands for the gradients of the valid tokens, as `token_gradient` says."""
        options = self.credit_args
        if options.token_gradient == "full":
            return self._full_gradients(batch, valid)

        # The first scoring call was the policy's own only if its log-probs are the batch's: it may also have been the
        # reference model's, even on the same modules (PEFT with the adapter disabled).
        free = recorder.complete and recorder.log_probs is batch.get("old_per_token_logps")
        if not free:
            recorder.hidden_states = None  # of the wrong model, if any
            recorder = self._score_rollout(batch)
            statistics["extra_forward_passes"] = 1.0
        hidden = recorder.hidden_states  # one row per completion token, those of tools included
        if "tool_mask" in batch:
            hidden = hidden[valid[batch["completion_mask"].bool()]]
        log_probs = recorder.log_probs[valid]  # N = valid.sum()
        if options.token_gradient == "output_row":
            return OutputRowGradients(hidden, log_probs)
        head, tokens = LMHead.of(self._policy(), self.temperature), batch["completion_ids"][valid]
        if len(tokens) and not self._checked_lm_head:
            head.check(hidden, tokens, log_probs)
            self._checked_lm_head = True
        if options.token_gradient == "lm_head":
            return LMHeadGradients(hidden, tokens, head)
        return TopKHiddenGradients(hidden, tokens, head, options.token_gradient_top_k)

    def _full_gradients(self, batch: dict, valid: torch.Tensor) -> FullGradients:
        size = self.args.per_device_train_batch_size
        slices = [slice(i, i + size) for i in range(0, len(valid), size)]
        plain_logits = self.credit_args.full_gradient_estimator == "forward"

        def log_probs(i: int) -> torch.Tensor:
            # TRL's fused LM head has no forward derivative; the model's own logits do
            score = self._plain_log_probs if plain_logits else self._log_probs
            return score(batch, slices[i])[valid[slices[i]]]

        return FullGradients(
            self._policy(),
            log_probs,
            len(slices),
            estimator=self.credit_args.full_gradient_estimator,
            last_blocks=self.credit_args.full_scope,
        )

    def _plain_log_probs(self, batch: dict, rows: slice) -> torch.Tensor:  # (b, T)
        ids, mask, T = _model_inputs(batch, rows)
        with self.accelerator.autocast():
            logits = self._policy()(input_ids=ids, attention_mask=mask, logits_to_keep=T + 1, use_cache=False).logits
        log_probs = (logits[:, :-1].float() / self.temperature).log_softmax(dim=-1)
        return log_probs.gather(2, ids[:, -T:, None])[:, :, 0]

    def _log_probs(self, batch: dict, rows: slice = slice(None)) -> torch.Tensor:  # (b, T)
        """TRL's log-probabilities of the completion tokens, at the policy's present parameters."""
        ids, mask, T = _model_inputs(batch, rows)
        multimodal = {key: batch[key] for key in SCORING_PARAMETERS if key in batch}
        size = self.args.per_device_train_batch_size
        return self._get_per_token_logps_and_entropies(self.model, ids, mask, T, batch_size=size, **multimodal)[0]

    def _score_rollout(self, batch: dict) -> HiddenStateRecorder:
        """One no-grad pass of the policy over the rollout batch, in micro-batches, as TRL scores old log-probs."""
        self._recorder = recorder = HiddenStateRecorder()
        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            self._log_probs(batch)
        if not recorder.complete:
            raise RuntimeError(
                f"The forward hook on {type(self._find_backbone()).__name__} did not see every row of the rollout "
                "batch. Hooks do not fire on a module that torch.compile has already compiled: construct the trainer "
                "with the uncompiled model (`torch_compile` in the training arguments is fine)."
            )
        return recorder

    def _save_checkpoint(self, model, trial):
        # before the rest: a checkpoint counts as complete once its last file, trainer_state.json, is written
        folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if self._token_log:
            self._token_log.save(folder)
        if self._temperatures is not None and self.args.should_save:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / CREDIT_STATE).write_text(json.dumps({"temperatures": self._temperatures}))
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if self._token_log and checkpoint is not None:
            self._token_log.load(Path(checkpoint))
        self._temperatures = None
        if checkpoint is not None and self.credit_args.temperature_mode == "initial":
            path = Path(checkpoint, CREDIT_STATE)
            if path.is_file():  # else no rollout batch had a contrast yet
                self._temperatures = tuple(json.loads(path.read_text())["temperatures"])

    def _compute_loss(self, model, inputs):
        if "token_coefficients" in inputs:
            # TRL accepts (B, T) advantages from subclasses; λ̄ > 0 commutes with the clipped surrogate's min
            advantages = inputs["advantages"][:, None] * inputs["token_coefficients"]
            inputs = {**inputs, "advantages": advantages}
        if self.credit_args.token_credit != "fipo" or not self.model.training:
            return super()._compute_loss(model, inputs)
        # FIPO's weights need the present log-probs, which TRL's method computes before it reads the advantages
        self._fipo_inputs = {**inputs}
        try:
            return super()._compute_loss(model, self._fipo_inputs)
        finally:
            self._fipo_inputs = None

    def _weigh_by_future(self, inputs: dict, log_probs: torch.Tensor) -> None:
        log_probs = log_probs.detach()
        old_log_probs = inputs.get(
            "old_per_token_logps", log_probs
        )  # absent on the rollout's own policy: weights of 1
        valid = _valid_tokens(inputs)
        weights = fipo_weights(log_probs, old_log_probs, inputs["advantages"], valid, dual_clip=self.args.delta)
        total, count = self.accelerator.reduce(torch.stack([(weights * valid).sum(), valid.sum()]), reduction="sum")
        self._metrics["train"]["credit/fipo_weight_mean"].append((total / count.clamp(min=1)).item())
        inputs["advantages"] = inputs["advantages"][:, None] * weights


def _model_inputs(batch: dict, rows: slice) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Ids and attention mask (b, P + T) of some rows of a batch, and T."""
    ids = torch.cat([batch["prompt_ids"][rows], batch["completion_ids"][rows]], dim=1)
    mask = torch.cat([batch["prompt_mask"][rows], batch["completion_mask"][rows]], dim=1)
    return ids, mask, batch["completion_ids"].size(1)


def _valid_tokens(batch: dict) -> torch.Tensor:
    """The tokens that the loss counts, (B, T): sampled by the policy, neither padding nor a tool's."""
    mask = batch["completion_mask"].bool()
    return mask & batch["tool_mask"].bool() if "tool_mask" in batch else mask
