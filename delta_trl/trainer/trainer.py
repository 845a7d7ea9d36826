"""
`DeltaGRPOTrainer`: TRL's `GRPOTrainer` with token credit, by default DelTA's (arXiv 2605.21467).

What happens to a rollout batch is all in `_generate_and_score_completions`: TRL generates, rewards and scores it; the
rule of token credit weighs its tokens; the advantages become one for each token, (B, T), which TRL's loss takes as
they are. Nothing is copied from TRL. The base classes work on any `GRPOTrainer`.
"""

import dataclasses
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.logging import get_logger
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import get_config_model_id

from ..credit import Credit, TokenCredit, Tokens, checked_credit, coefficient_statistics
from ..policy.prompts import stop_tokens
from ..policy.recorder import ScoringPass, backbone_of
from ..report.token_log.log import TokenLog
from ..rewards.failures import explain_failures
from .checkpoints import SafeCheckpoints
from .checks import warn_of_silent_mistakes
from .config import CreditArguments, DeltaGRPOConfig
from .credit_rule import PAPER, RuleState, arxiv_of, card_section, card_text, choose_rule
from .dynamic_sampling import DynamicSampling, stands_out, total_rewards
from .finite_updates import FiniteUpdates
from .scoring import RolloutPolicy, causal_model, trl_scores_rollouts
from .trimmed_padding import TrimmedPadding


logger = get_logger(__name__)


class DeltaGRPOTrainer(
    TrimmedPadding,
    FiniteUpdates,  # before a checkpoint is begun
    SafeCheckpoints,
    DynamicSampling,  # last: the others see the groups that are trained, not the rounds
    GRPOTrainer,
):
    """
    Drop-in for [`~trl.GRPOTrainer`] that gives every token credit of its own, by default DelTA's.

    Takes the arguments of [`~trl.GRPOTrainer`] and `token_credit`. With a plain [`~trl.GRPOConfig`] as `args`, the
    options of [`CreditArguments`] keep their defaults. If its loss would ignore token credit, the trainer warns and
    gives none. Other mistakes that are silent are warned of, too, see `trainer/checks.py`.

    When TRL scores old log-probabilities itself (several optimiser steps per rollout batch, or vLLM with
    importance-sampling correction), coefficients cost no forward pass; otherwise one no-grad pass per rollout batch.
    See docs/cost.md; docs/token_credit.md lists the metrics that are logged under `credit/`.

    Args:
        token_credit ([`~credit.TokenCredit`] or `str`, *optional*):
            How tokens are credited: an instance, or a name as in `args.token_credit`, which it replaces.
        *other_args, **kwargs: Those of [`~trl.GRPOTrainer`].

    Raises:
        ValueError: At construction, if token credit is given twice, or cannot work with the model.

    Example:

    ```python
    >>> from datasets import load_dataset
    >>> from delta_trl import DeltaGRPOConfig, DeltaGRPOTrainer
    >>> from delta_trl.credit import DelTA
    >>> from delta_trl.rewards import math_reward

    >>> trainer = DeltaGRPOTrainer(
    ...     model="Qwen/Qwen3-0.6B",
    ...     reward_funcs=math_reward,
    ...     args=DeltaGRPOConfig(output_dir="Qwen3-0.6B-DelTA"),
    ...     train_dataset=load_dataset("trl-lib/DeepMath-103K", split="train"),
    ...     token_credit=DelTA(lambda_max=1.5),
    ... )
    >>> trainer.train()
    ```
    """

    _tag_names = ["trl", "grpo", "delta"]  # noqa: RUF012 (as in TRL)
    _name, _paper = "DelTA", PAPER

    def __init__(
        self,
        model,
        reward_funcs=None,
        args: GRPOConfig | None = None,
        *other_args,
        token_credit: TokenCredit | str | None = None,
        **kwargs,
    ):
        if args is None:
            name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = DeltaGRPOConfig(f"{name.split('/')[-1]}-DelTA")
        self.credit_args = args if isinstance(args, CreditArguments) else CreditArguments()
        self.trim_padding = self.credit_args.trim_padding
        self.dynamic_sampling = self.credit_args.dynamic_sampling
        self.dynamic_sampling_max_rounds = self.credit_args.dynamic_sampling_max_rounds
        self.token_credit = choose_rule(token_credit, args)
        if arxiv_of(self.token_credit) != PAPER["id"]:
            self._tag_names = [tag for tag in self._tag_names if tag != "delta"]
            if self._paper is PAPER:  # a subclass may have its own
                self._name, self._paper = GRPOTrainer._name, GRPOTrainer._paper
        super().__init__(model, reward_funcs, args, *other_args, **kwargs)
        # TRL cuts completions at these tokens only, and would train on the padding after others that stop generation
        self.eos_token_ids = list(dict.fromkeys([*self.eos_token_ids, *stop_tokens(self.args)]))
        warn_of_silent_mistakes(self)
        if self.dynamic_sampling:
            self.checkpoint_parts.append(self.prompt_order)
        self._prepare_credit()

    def _prepare_credit(self) -> None:
        rule, options = self.token_credit, self.credit_args
        if rule.needs_hidden_states:
            backbone_of(causal_model(self))  # raises if there is none
        rule.check(self)
        self._recorder: ScoringPass | None = None  # of the next scoring call, as is the micro-batch
        self._micro_batch: dict | None = None
        self._token_log: TokenLog | None = None
        if options.log_token_credit and not rule.credits_rollouts:
            logger.warning(f"log_token_credit is without effect: {card_text(rule)} gives rollout batches no credit.")
        elif options.log_token_credit:
            self._token_log = TokenLog(self, self._tokenizer)
            self.add_callback(self._token_log)
        self.add_callback(rule_state := RuleState(rule, self))
        self.checkpoint_parts.append(rule_state)

    # --- credit of a rollout batch ---

    def _generate_and_score_completions(self, inputs):
        if not (self.model.training and self.token_credit.credits_rollouts):
            return super()._generate_and_score_completions(inputs)
        with self._recording() as recorder:  # the hidden states (N, d) of TRL's own scoring pass
            batch = super()._generate_and_score_completions(inputs)
        start = time.perf_counter()
        policy = RolloutPolicy(self, batch, recorder, inputs)
        tokens = self._tokens(batch, policy)  # N of them, flat
        credit = checked_credit(self.token_credit, "of_rollout", tokens)
        if credit is not None:
            batch["token_coefficients"] = tokens.padded(credit.weights)  # (N,) -> (B, T)
            batch["advantages"] = tokens.padded(credit.advantages)
            self._log_rollout(credit, tokens, policy.forward_passes, time.perf_counter() - start)
            if self._token_log:
                self._token_log.observe(batch, tokens, self.last_rewards.cpu())
        return batch

    @contextmanager
    def _recording(self) -> Iterator[ScoringPass]:
        """Record TRL's scoring of the rollout batch, if it makes one: its first scoring call is the policy's then."""
        recorder = self.scoring_pass(self.token_credit.needs_hidden_states)
        self._recorder = recorder if trl_scores_rollouts(self.args) else None
        try:
            yield recorder
        finally:  # also if generation raises
            self._recorder = None

    def scoring_pass(self, hidden: bool) -> ScoringPass:
        """Something that records one scoring pass, with hidden states or without."""
        backbone = backbone_of(causal_model(self)) if hidden else None
        return ScoringPass(backbone, self.credit_args.hidden_state_cache, self.piece_in_progress)

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **options
    ):
        inputs = input_ids, attention_mask, logits_to_keep, batch_size
        score = partial(super()._get_per_token_logps_and_entropies, model, *inputs, **options)
        recorder, self._recorder = self._recorder, None
        micro_batch, self._micro_batch = self._micro_batch, None
        output = score() if recorder is None else recorder.record(score, attention_mask[:, -logits_to_keep:])
        if micro_batch is not None:
            self._weigh(micro_batch, output[0].detach(), output[1].detach())
        return output

    def _tokens(self, batch: dict, policy: RolloutPolicy) -> Tokens:
        first, size = self.accelerator.process_index * len(batch["advantages"]), self.num_generations
        rows = first + torch.arange(len(batch["advantages"]), device=self.accelerator.device)
        batch["advantages"] = batch["advantages"].clone()
        batch["advantages"][~stands_out(self, self.last_rewards)[rows]] = 0.0  # rounding makes no winner or loser
        rewards = total_rewards(self, self.last_rewards)[rows]
        return Tokens.of_batch(batch, policy, rewards=rewards, groups=rows // size, **policy.known)

    # --- credit of a micro-batch, for rules that depend on how the policy has moved since the rollout ---

    def _compute_loss(self, model, inputs):
        if not (self.model.training and self.token_credit.credits_micro_batches):
            return super()._compute_loss(model, inputs)
        self._micro_batch = inputs = dict(inputs)
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._micro_batch = None

    def _weigh(self, batch: dict, log_probs: torch.Tensor, entropies: torch.Tensor) -> None:
        """Between the loss's scoring and its reading of the advantages."""
        old = batch.get("old_per_token_logps", log_probs)  # absent while the policy is the rollout's
        tokens = Tokens.of_batch(batch, log_probs=log_probs, old_log_probs=old, entropies=entropies)
        credit = checked_credit(self.token_credit, "of_micro_batch", tokens)
        if credit is not None:
            batch["advantages"] = tokens.padded(credit.advantages)
            self._log_credit(credit.metrics)

    # --- rewards, precision, logs and records ---

    def _calculate_rewards(self, *args, **kwargs):
        given = self.reward_funcs  # restored below: other code reads this list
        self.reward_funcs = [explain_failures(*pair) for pair in zip(given, self.reward_func_names, strict=True)]
        try:
            return super()._calculate_rewards(*args, **kwargs)
        finally:
            self.reward_funcs = given

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()  # before TRL shards a reference model
        plugin = self.accelerator.state.fsdp_plugin if self.accelerator.is_fsdp2 else None
        if plugin is not None and plugin.mixed_precision_policy is not None:
            # FSDP2 casts what the model returns: bfloat16 log-probabilities have two or three digits
            plugin.mixed_precision_policy = dataclasses.replace(plugin.mixed_precision_policy, output_dtype=None)

    def _log_credit(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            if not math.isnan(value):  # undefined in a batch without contrast, say
                self._metrics["train"][f"credit/{name}"].append(value)

    def _log_rollout(self, credit: Credit, tokens: Tokens, forward_passes: int, seconds: float) -> None:
        self._log_credit(
            {
                **credit.metrics,
                "neutral": float(credit.neutral),
                **coefficient_statistics(credit.weights, tokens.advantages),
                "extra_forward_passes": forward_passes + credit.metrics.get("extra_forward_passes", 0.0),
                "seconds": seconds,
            }
        )

    def create_model_card(self, *args, **kwargs):
        super().create_model_card(*args, **kwargs)
        if self.is_world_process_zero():
            with Path(self.args.output_dir, "README.md").open("a", encoding="utf-8") as card:
                card.write(card_section(self.token_credit))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "token_credit": repr(self.token_credit)}
