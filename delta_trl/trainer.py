"""
`DeltaGRPOTrainer`: TRL's `GRPOTrainer` with DelTA token coefficients (arXiv 2605.21467).

Small overrides, no method copied:
- `_generate`, `_generate_single_turn` and `_get_per_token_logps_and_entropies` show `hidden_states` what comes by;
- `_generate_and_score_completions` makes coefficients of it, the batch entry `"token_coefficients"`;
- `_compute_loss` multiplies the advantages by them, or has them made in its own forward (streaming);
- `_calculate_rewards` keeps rewards for `token_log`, and for avg@k in `evaluation_loop`;
- `_save_checkpoint` and `_load_optimizer_and_scheduler` take along what outlives a rollout batch.
"""

import inspect
import json
import math
import textwrap
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from accelerate.logging import get_logger
from accelerate.utils import gather_object, is_peft_model
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, has_length
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import get_config_model_id

from .checkpoints import optimiser_steps_per_rollout, saves_inside_a_rollout
from .config import CreditArguments, DeltaGRPOConfig
from .credit import (
    Contrast,
    FullGradients,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    StreamingCredit,
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
from .evaluation.metrics import avg_at_k
from .hidden_states import HiddenStateSource
from .recording import predicting_states
from .reward_errors import explain_failures
from .token_log import TokenLog


logger = get_logger(__name__)

SCORING_PARAMETERS = tuple(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
# in a checkpoint: the kept temperatures, and the contrast that streaming goes on from
CREDIT_STATE, CONTRAST = "credit_state.json", "credit_contrast.safetensors"


class DeltaGRPOTrainer(GRPOTrainer):
    """
    Drop-in for [`~trl.GRPOTrainer`] that reweights every token's loss with its DelTA coefficient.

    Takes the arguments of [`~trl.GRPOTrainer`]. With a plain [`~trl.GRPOConfig`] as `args` the credit options keep
    their defaults and everything else is as given. Evaluation is `GRPOTrainer`'s and also reports `eval_avg_at_k`:
    the mean over problems of the first reward function's mean over their `num_generations_eval` completions.

    When TRL scores old log-probabilities itself (several optimiser steps per rollout batch, or vLLM with
    importance-sampling correction), or generation is seen to compute the same hidden states, coefficients cost no
    forward pass; otherwise one no-grad pass per rollout batch. See docs/cost.md. The README lists the metrics that are
    logged under `credit/`.

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
        self._hidden_states: HiddenStateSource | None = None  # while TRL's constructor runs
        # what is to be called with the log-probs of the loss that is being computed, see `_compute_loss`
        self._with_log_probs: Callable[[torch.Tensor], None] | None = None
        # rewards of all processes' rows by function, as they were last computed; and log-probabilities and entropies
        # of the policy's own pass over the present rollout batch, for the token log
        self._rewards: torch.Tensor | None = None
        self._scores: tuple[torch.Tensor, torch.Tensor | None] | None = None
        super().__init__(model, reward_funcs, args, *other_args, **kwargs)
        self.reward_funcs = [
            explain_failures(func, name) for func, name in zip(self.reward_funcs, self.reward_func_names, strict=True)
        ]
        # of an evaluation in progress: the first reward function's rewards of each batch, over all processes
        self._eval_rewards: list[torch.Tensor] = []
        # γ₊ and γ₋ of the first rollout batch, kept with `temperature_mode="initial"`
        self._temperatures: tuple[float, float] | None = None
        self._checked_lm_head = False
        options = self.credit_args
        self._streaming: StreamingCredit | None = None
        if options.coefficient_timing == "streaming":
            self._streaming = StreamingCredit(
                options.refinement_steps,
                options.lambda_min,
                options.lambda_max,
                options.normalize_coefficients,
                options.assignment,
                keep_temperatures=options.temperature_mode == "initial",
            )
        if options.weighs_rollouts:
            self._find_backbone()
            self._refuse_what_cannot_work()
        if options.reads_hidden_states:
            self._hidden_states = HiddenStateSource(self)
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
        if args.torch_compile and self.credit_args.coefficient_timing == "streaming":
            raise ValueError(
                "coefficient_timing='streaming' does not work with torch_compile: a compiled training forward does "
                "not show its hidden states. Use coefficient_timing='exact'."
            )
        if gradient != "full":
            return
        forward_mode = self.credit_args.full_gradient_estimator == "forward"
        if self.is_fsdp_enabled and (forward_mode or args.gradient_accumulation_steps > 1):
            raise ValueError(
                "token_gradient='full' works under FSDP with difference quotients and gradient_accumulation_steps=1 "
                "only: full_gradient_estimator='forward' cannot swap shards, and within an accumulation FSDP does not "
                "reduce gradients."
            )
        if forward_mode and args.gradient_checkpointing and is_peft_model(self.model):
            raise ValueError(
                "full_gradient_estimator='forward' does not work on LoRA with gradient checkpointing: its input hook "
                "has no forward derivative. Use full_gradient_estimator='auto' or gradient_checkpointing=False."
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
        recorder = self._hidden_states and self._hidden_states.disarm()
        if recorder is None:
            output = forward(model, input_ids, attention_mask, logits_to_keep, *args, **kwargs)
            if self._with_log_probs is not None:
                self._with_log_probs(output[0].detach())
            return output
        if self._token_log and model is not self.ref_model:
            kwargs["compute_entropy"] = True  # the fused LM head of the policy does so anyway
        with recorder.recording(model, self._find_backbone(), attention_mask[:, -logits_to_keep:]):
            output = forward(model, input_ids, attention_mask, logits_to_keep, *args, **kwargs)
        recorder.log_probs = output[0]
        if self._token_log:
            self._scores = output[:2]
        return output

    def _calculate_rewards(self, *args, **kwargs):
        self._rewards = super()._calculate_rewards(*args, **kwargs)
        if not self.model.training:
            self._eval_rewards.append(self._rewards[:, 0])
        return self._rewards

    def _generate_single_turn(self, *args, **kwargs):
        if self._hidden_states is None:
            return super()._generate_single_turn(*args, **kwargs)
        with self._hidden_states.watching_generation():
            output = super()._generate_single_turn(*args, **kwargs)
        self._hidden_states.generated([len(ids) for ids in output[0]])
        return output

    def _generate(self, prompts):
        output = super()._generate(prompts)
        if self._hidden_states is not None:
            self._hidden_states.expect_tools(output[2])
        return output

    def _generate_and_score_completions(self, inputs):
        if not self.model.training or not self.credit_args.weighs_rollouts:
            batch = super()._generate_and_score_completions(inputs)
            coefficient_means = trained_advantages = [None] * len(inputs)
        elif self._streaming is not None and self._streaming.contrast.known:
            batch = super()._generate_and_score_completions(inputs)
            coefficient_means = trained_advantages = [None] * len(inputs)  # not known yet
            self._start_streaming(batch)
        else:
            self._scores = None
            with self._hidden_states.watching() if self._hidden_states else nullcontext():
                batch = super()._generate_and_score_completions(inputs)
                coefficients = batch["token_coefficients"] = self._credit_tokens(batch)
            means = coefficients.sum(dim=1) / _valid_tokens(batch).sum(dim=1).clamp(min=1)
            coefficient_means = [round(mean, 4) for mean in means.tolist()]
            trained_advantages = [round(mean, 4) for mean in (batch["advantages"] * means).tolist()]
            if self._token_log:
                self._token_log.observe(batch, _valid_tokens(batch), self._rewards, self._scores)
                self._scores = None
        if self.credit_args.weighs_rollouts:
            # TRL's column "advantage" was filled before; what trains is advantage × coefficient
            self._logs["extra"]["mean_token_coefficient"].extend(gather_object(coefficient_means))
            self._logs["extra"]["trained_advantage"].extend(gather_object(trained_advantages))
        return batch

    def _credit_tokens(self, batch: dict) -> torch.Tensor:  # (B, T)
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
            credit = self._contrast(self._gradients(batch, valid), batch, advantages, statistics)
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
        self._log_credit(credit, advantages, {**statistics, "seconds": time.perf_counter() - start})
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
        if self._hidden_states is not None:
            statistics["extra_forward_passes"] += self._hidden_states.forward_passes
        contrast = None if self._streaming is None else self._streaming.contrast
        if options.token_gradient != "full":  # there it would cost two backward passes
            statistics["centroid_cosine"] = centroid_cosine(gradients, advantages)
        if options.centroid_scope == "group":
            valid = _valid_tokens(batch)
            first_row = self.accelerator.process_index * len(valid)
            rows = first_row + torch.arange(len(valid), device=valid.device)
            groups = (rows // self.num_generations)[:, None].expand_as(valid)[valid]
            n_groups = self.accelerator.num_processes * len(valid) // self.num_generations
            return group_coefficients(gradients, advantages, groups, n_groups, **shared)
        coefficients = token_coefficients(
            gradients, advantages, temperatures=self._temperatures, contrast=contrast, **shared
        )
        statistics["extra_forward_passes"] += float(gradients.forward_passes)
        if options.temperature_mode == "initial" and self._temperatures is None and not statistics["neutral"]:
            self._temperatures = (statistics["temperature_positive"], statistics["temperature_negative"])
        return coefficients

    def _gradients(self, batch: dict, valid: torch.Tensor) -> TokenGradients:
        """What stands for the gradients of the valid tokens, as `token_gradient` says."""
        options = self.credit_args
        if options.token_gradient == "full":
            return self._full_gradients(batch, valid)

        recorder = self._hidden_states.get(batch, valid)
        if self._token_log and self._scores is None:
            self._scores = (recorder.log_probs, None)
        hidden, log_probs = recorder.states, recorder.log_probs[valid]  # N = valid.sum()
        if options.token_gradient == "output_row":
            sums = recorder.response_sums
            if sums is not None:
                sums = (sums, torch.arange(len(valid), device=valid.device)[:, None].expand_as(valid)[valid])
            return OutputRowGradients(hidden, log_probs, sums)
        head, tokens = LMHead.of(self._policy(), self.temperature), batch["completion_ids"][valid]
        if len(tokens) and not self._checked_lm_head and recorder.few_states is not None:
            few = slice(0, len(recorder.few_states))
            head.check(recorder.few_states, tokens[few], log_probs[few])
            self._checked_lm_head = True
        if options.token_gradient == "lm_head":
            return LMHeadGradients(hidden, tokens, head)
        return TopKHiddenGradients(hidden, tokens, head, options.token_gradient_top_k)

    def _full_gradients(self, batch: dict, valid: torch.Tensor) -> FullGradients:
        # Responses without advantage pull nowhere, and their tokens' coefficients do not depend on a score: leave out
        # as many rows as all ranks can, which must make the same number of forwards under FSDP.
        lengths = batch["completion_mask"].sum(dim=1)
        active = (batch["advantages"].nan_to_num() != 0) & (lengths > 0)
        n_rows = max(int(self.accelerator.gather(active.sum()).max()), 1)
        # the longest first, so that a micro-batch can end where its own completions do
        order = (lengths * active).argsort(descending=True, stable=True)
        rows = order[:n_rows].split(self.args.per_device_train_batch_size)
        T = [max(int(lengths[i].max()), 1) for i in rows]
        number = torch.zeros_like(valid, dtype=torch.long)
        number[valid] = torch.arange(int(valid.sum()), device=valid.device)
        plain_logits = self.credit_args.full_gradient_estimator == "forward"

        def log_probs(i: int) -> torch.Tensor:
            # TRL's fused LM head has no forward derivative; the model's own logits do
            score = self._plain_log_probs if plain_logits else self._log_probs
            return score(batch, rows[i], T[i])[valid[rows[i], : T[i]]]

        return FullGradients(
            self._policy(),
            log_probs,
            len(rows),
            estimator=self.credit_args.full_gradient_estimator,
            dtype=self._compute_dtype(),
            last_blocks=self.credit_args.full_scope,
            tokens=torch.cat([number[i][valid[i]] for i in rows]),
        )

    def _compute_dtype(self) -> torch.dtype | None:
        """The dtype of autocast, if that is on."""
        return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.accelerator.mixed_precision)

    def _plain_log_probs(self, batch: dict, rows: torch.Tensor, T: int) -> torch.Tensor:  # (b, T)
        ids, mask = _model_inputs(batch, rows, T)
        with self.accelerator.autocast():
            logits = self._policy()(input_ids=ids, attention_mask=mask, logits_to_keep=T + 1, use_cache=False).logits
        log_probs = (logits[:, :-1].float() / self.temperature).log_softmax(dim=-1)
        return log_probs.gather(2, ids[:, -T:, None])[:, :, 0]

    def _log_probs(
        self, batch: dict, rows: torch.Tensor | slice = slice(None), T: int | None = None
    ) -> torch.Tensor:  # (b, T)
        """TRL's log-probabilities of the (first T) completion tokens, at the policy's present parameters."""
        T = T or batch["completion_ids"].size(1)
        ids, mask = _model_inputs(batch, rows, T)
        multimodal = {key: batch[key] for key in SCORING_PARAMETERS if key in batch}
        size = self.args.per_device_train_batch_size
        return self._get_per_token_logps_and_entropies(self.model, ids, mask, T, batch_size=size, **multimodal)[0]

    def _score(self, batch: dict, rows: slice = slice(None)) -> torch.Tensor:  # (b, T)
        """A no-grad pass of the policy, in micro-batches, as TRL scores old log-probs."""
        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            return self._log_probs(batch, rows)

    def _start_streaming(self, batch: dict) -> None:
        valid = _valid_tokens(batch)
        advantages = batch["advantages"][:, None].expand_as(valid)[valid]
        self._streamed = []
        if not self._streaming.begin(advantages):
            batch["token_coefficients"] = valid.float()
            statistics = {"temperature_positive": math.nan, "temperature_negative": math.nan, "neutral": 1.0}
            self._log_credit(torch.ones_like(advantages), advantages, {**statistics, "seconds": 0.0})

    def _stream(self, states: torch.Tensor, log_probs: torch.Tensor, inputs: dict) -> None:
        """Coefficients of a micro-batch from the hidden states (n, d) and log-probabilities (b, T) of its forward."""
        start = time.perf_counter()
        valid = _valid_tokens(inputs)
        gradients = OutputRowGradients(states, log_probs[valid])
        credit = self._streaming.coefficients(gradients, inputs["advantages"][:, None].expand_as(valid)[valid])
        inputs["token_coefficients"] = valid.float().masked_scatter_(valid, credit)
        self._streamed.append(time.perf_counter() - start)
        if len(self._streamed) < self.args.steps_per_generation:
            return
        gamma = self._streaming.contrast.temperatures.tolist()
        credit, advantages = self._streaming.finish()
        statistics = {"temperature_positive": gamma[0], "temperature_negative": gamma[1], "neutral": 0.0}
        self._log_credit(credit, advantages, {**statistics, "seconds": sum(self._streamed)})

    def _log_credit(self, credit: torch.Tensor, advantages: torch.Tensor, statistics: dict) -> None:
        statistics = {"extra_forward_passes": 0.0, **statistics, **coefficient_statistics(credit, advantages)}
        for name, value in statistics.items():
            self._metrics["train"][f"credit/{name}"].append(value)

    def evaluation_loop(self, dataloader, *args, metric_key_prefix: str = "eval", **kwargs):
        self._eval_rewards, k = [], self.num_generations_eval
        output = super().evaluation_loop(dataloader, *args, metric_key_prefix=metric_key_prefix, **kwargs)
        if not self._eval_rewards:  # `dataloader_drop_last` has left no batch
            return output
        rewards = torch.cat(self._eval_rewards).view(-1, k)  # unscorable completions are NaN
        if has_length(dataloader.dataset):
            rewards = rewards[: len(dataloader.dataset)]  # several processes fill up the last batch with repeated rows
        output.metrics[f"{metric_key_prefix}_avg_at_k"] = avg_at_k(rewards.cpu().numpy())
        return output

    def _save_checkpoint(self, model, trial):
        # before the rest: a checkpoint counts as complete once its last file, trainer_state.json, is written
        folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if self._token_log:
            self._token_log.save(folder)
        if self.args.should_save:
            folder.mkdir(parents=True, exist_ok=True)
            if self._temperatures is not None:
                (folder / CREDIT_STATE).write_text(json.dumps({"temperatures": self._temperatures}))
            if self._streaming is not None and self._streaming.contrast.known:
                save_file(vars(self._streaming.contrast), folder / CONTRAST)
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
        if self._streaming is not None:
            self._streaming.contrast = Contrast()
            if checkpoint is not None and Path(checkpoint, CONTRAST).is_file():
                tensors = load_file(Path(checkpoint, CONTRAST), device=str(self.accelerator.device))
                self._streaming.contrast = Contrast(**tensors)

    def _compute_loss(self, model, inputs):
        if not self.model.training:
            return super()._compute_loss(model, inputs)
        # TRL computes the present log-probs before it reads the advantages, so these may be made from those
        loss_inputs = {**inputs}
        hook = None
        if self.credit_args.token_credit == "fipo":
            self._with_log_probs = lambda log_probs: self._weigh_by_future(loss_inputs, log_probs)
        elif self._streaming is not None and "token_coefficients" not in inputs:
            states = []
            hook = self._find_backbone().register_forward_hook(
                lambda module, args, output: states.append(
                    predicting_states(output.last_hidden_state, _valid_tokens(inputs))
                )
            )

            def stream(log_probs):
                self._stream(states.pop(), log_probs, inputs)  # for all iterations over this micro-batch
                _multiply_advantages(loss_inputs, inputs["token_coefficients"])

            self._with_log_probs = stream
        elif "token_coefficients" in inputs:
            # λ̄ > 0 commutes with the clipped surrogate's min
            _multiply_advantages(loss_inputs, inputs["token_coefficients"])
        try:
            return super()._compute_loss(model, loss_inputs)
        finally:
            self._with_log_probs = None
            if hook is not None:
                hook.remove()

    def _weigh_by_future(self, inputs: dict, log_probs: torch.Tensor) -> None:
        # absent on the rollout's own policy: weights of 1
        old_log_probs = inputs.get("old_per_token_logps", log_probs)
        valid = _valid_tokens(inputs)
        weights = fipo_weights(log_probs, old_log_probs, inputs["advantages"], valid, dual_clip=self.args.delta)
        total, count = self.accelerator.reduce(torch.stack([(weights * valid).sum(), valid.sum()]), reduction="sum")
        self._metrics["train"]["credit/fipo_weight_mean"].append((total / count.clamp(min=1)).item())
        _multiply_advantages(inputs, weights)


def _multiply_advantages(inputs: dict, weights: torch.Tensor) -> None:
    """Give every token of a micro-batch an advantage of its own, (B, T): TRL accepts these from subclasses."""
    inputs["advantages"] = inputs["advantages"][:, None] * weights


def _model_inputs(batch: dict, rows: torch.Tensor | slice, T: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask (b, P + T) of some rows of a batch, up to the completions' T-th token."""
    ids = torch.cat([batch["prompt_ids"][rows], batch["completion_ids"][rows, :T]], dim=1)
    mask = torch.cat([batch["prompt_mask"][rows], batch["completion_mask"][rows, :T]], dim=1)
    return ids, mask


def _valid_tokens(batch: dict) -> torch.Tensor:
    """The tokens that the loss counts, (B, T): sampled by the policy, neither padding nor a tool's."""
    mask = batch["completion_mask"].bool()
    return mask & batch["tool_mask"].bool() if "tool_mask" in batch else mask
