"""
`DeltaGRPOTrainer`: TRL's `GRPOTrainer` with token credit, by default DelTA's (arXiv 2605.21467).

It overrides three methods of TRL and copies none:
- `_generate_and_score_completions` asks the rule for the credit of a rollout batch: its entry `"token_coefficients"`;
- `_compute_loss` multiplies the advantages by it, and by the rule's credit of the micro-batch;
- `_get_per_token_logps_and_entropies` records TRL's own scoring pass of a rollout batch, which saves a second pass.

The base classes do the rest. Each of them works on any `GRPOTrainer`.
"""

import math
import time
from functools import partial
from typing import Any

import torch
from accelerate.logging import get_logger
from accelerate.utils import gather_object
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import get_config_model_id

from ..credit import Credit, TokenCredit, Tokens, checked_credit, coefficient_statistics
from ..policy.prompts import stop_tokens
from ..policy.recorder import ScoringPass, backbone_of
from ..report.token_log.log import TokenLog
from .checkpoints import SafeCheckpoints
from .checks import refuse_what_hides_states, warn_of_silent_mistakes
from .config import CreditArguments, DeltaGRPOConfig
from .contrast import is_rounding, total_rewards
from .credit_rule import DELTA, PAPERS, RuleState, arxiv_of, card_text, choose_rule, describe_rule
from .dynamic_sampling import DynamicSampling
from .fsdp_precision import FSDPPrecision
from .model_card import CardWithMethod
from .reward_checks import RewardChecks
from .rollout_policy import RolloutPolicy
from .rollouts import trl_scores_rollouts
from .scoring import causal_model
from .trimmed_padding import TrimmedPadding


logger = get_logger(__name__)

# Entries of a rollout batch, whose rows TRL shuffles
TOTAL_REWARDS, GROUPS = "token_credit_rewards", "token_credit_groups"


class DeltaGRPOTrainer(
    TrimmedPadding,
    SafeCheckpoints,
    RewardChecks,
    CardWithMethod,
    FSDPPrecision,
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
    _name, _paper = DELTA.name, DELTA.for_card()

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
        self._describe_on_card()
        super().__init__(model, reward_funcs, args, *other_args, **kwargs)
        # TRL cuts completions at these tokens only, and would train on the padding after others that stop generation
        self.eos_token_ids = list(dict.fromkeys([*self.eos_token_ids, *stop_tokens(self.args)]))
        warn_of_silent_mistakes(self)
        if self.dynamic_sampling:
            self.checkpoint_parts.append(self.prompt_order)
        self._prepare_credit()

    def _describe_on_card(self) -> None:
        link = "[delta_trl](https://github.com/delta-trl/delta-trl)"
        self.method = f"## Token credit\n\n{card_text(self.token_credit)}, with {link}"
        paper = PAPERS.get(arxiv_of(self.token_credit))
        if paper is DELTA:
            return
        self._tag_names = [tag for tag in self._tag_names if tag != "delta"]
        if self._paper is DeltaGRPOTrainer._paper:  # a subclass may have its own
            self._name, self._paper = (
                (paper.name, paper.for_card()) if paper else (GRPOTrainer._name, GRPOTrainer._paper)
            )

    def _prepare_credit(self) -> None:
        rule, options, model = self.token_credit, self.credit_args, causal_model(self)
        if rule.needs_hidden_states:
            backbone_of(model)  # raises if there is none
            refuse_what_hides_states(self.args, self.is_fsdp_enabled)
        rule.check(self)
        # records TRL's first scoring call of a rollout batch; `None` afterwards
        self._recorder: ScoringPass | None = None
        # the micro-batch, and its copy for TRL, which the rule may weigh; `None` after a loss's first scoring call
        self._micro_batch: tuple[dict, dict] | None = None
        self._token_log: TokenLog | None = None
        if options.log_token_credit and not rule.credits_rollouts:
            logger.warning(f"log_token_credit is without effect: {card_text(rule)} gives rollout batches no credit.")
        elif options.log_token_credit:
            self._token_log = TokenLog(self, self._tokenizer)
            self.add_callback(self._token_log)
        rule_state = RuleState(rule, self)
        self.add_callback(rule_state)
        self.checkpoint_parts.append(rule_state)

    # --- credit of a rollout batch ---

    def _generate_and_score_completions(self, inputs):
        rule = self.token_credit
        if not (rule.credits_rollouts or rule.credits_micro_batches):
            return super()._generate_and_score_completions(inputs)
        if not self.model.training:
            batch = super()._generate_and_score_completions(inputs)
            if rule.credits_rollouts:
                self._log_columns([None] * len(inputs), [None] * len(inputs))
            return batch
        backbone = backbone_of(causal_model(self)) if rule.needs_hidden_states else None
        recorder = ScoringPass(backbone, self.credit_args.hidden_state_cache, self.piece_in_progress)
        self._recorder = recorder if trl_scores_rollouts(self.args) else None
        try:
            batch = super()._generate_and_score_completions(inputs)
        finally:  # also if generation raises
            self._recorder = None
        rows = len(inputs) * self.accelerator.process_index + torch.arange(len(inputs), device=self.accelerator.device)
        batch |= {TOTAL_REWARDS: total_rewards(self, self.last_rewards)[rows], GROUPS: rows // self.num_generations}
        advantages = batch["advantages"]
        if advantages.ndim != 1:
            raise ValueError(
                f"{type(self).__name__} has advantages of shape {tuple(advantages.shape)}: token credit takes one for "
                "each completion, and multiplies it. Use token_credit='none' to train on your own."
            )
        # They would count as winners or losers. Only TRL's own: a subclass may have another baseline.
        of_trl = advantages.new_tensor([*self._logs["advantages"]][-len(self.last_rewards) :])
        is_residue = (advantages == of_trl[rows]) & is_rounding(self, of_trl, self.last_rewards)[rows]
        batch["advantages"] = advantages.masked_fill(is_residue, 0.0)
        if rule.credits_rollouts:
            self._credit_rollout(batch, recorder)
        return batch

    def _credit_rollout(self, batch: dict, recorder: ScoringPass) -> None:
        start = time.perf_counter()
        rule, place = self.token_credit, self.credit_args.hidden_state_cache
        policy = RolloutPolicy(self, batch, _valid_tokens(batch), recorder, place, rule.needs_hidden_states)
        tokens = self._tokens(batch, policy=policy, **policy.known)
        credit = checked_credit(rule, "of_rollout", tokens)
        means = torch.ones_like(batch["advantages"])
        if credit is not None:
            batch["token_coefficients"] = tokens.padded(credit.weights)
            means = batch["token_coefficients"].sum(dim=1) / tokens.mask.sum(dim=1).clamp(min=1)
            self._log_rollout(credit, tokens, policy, time.perf_counter() - start)
            if self._token_log:
                self._token_log.observe(batch, tokens, self.last_rewards.cpu())
        # TRL's column "advantage" was filled before; what trains is advantage × coefficient
        self._log_columns(*([round(x, 4) for x in values.tolist()] for values in (means, batch["advantages"] * means)))

    def _tokens(self, batch: dict, **known) -> Tokens:
        return Tokens(
            batch["completion_ids"],
            _valid_tokens(batch),
            batch["advantages"],
            rewards=batch[TOTAL_REWARDS],
            groups=batch[GROUPS],
            **known,
        )

    # --- scoring and the loss ---

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **options
    ):
        inputs = input_ids, attention_mask, logits_to_keep, batch_size
        score = partial(super()._get_per_token_logps_and_entropies, model, *inputs, **options)
        # TRL scores a rollout batch or a micro-batch with the policy first
        recorder, self._recorder = self._recorder, None
        micro_batch, self._micro_batch = self._micro_batch, None
        if recorder is not None:
            log_probs, entropies, *others = recorder.record(score, attention_mask[:, -logits_to_keep:])
            return log_probs, entropies if options.get("compute_entropy") else None, *others
        output = score()
        if micro_batch is not None:
            self._credit_micro_batch(*micro_batch, log_probs=output[0], entropies=output[1])
        return output

    def _compute_loss(self, model, inputs):
        if not self.model.training:
            return super()._compute_loss(model, inputs)
        rule = self.token_credit
        if (rule.credits_rollouts or rule.credits_micro_batches) and GROUPS not in inputs:
            raise ValueError(
                f"{type(self).__name__} makes rollout batches without token credit: a subclass's "
                "_generate_and_score_completions must call super()'s and keep all entries of its batch. Or use "
                "token_credit='none'."
            )
        weighted = dict(inputs)
        if "token_coefficients" in inputs:
            _weigh(weighted, inputs["token_coefficients"])  # weights >= 0 commute with the clipped surrogate's min
        if self.token_credit.credits_micro_batches:
            # TRL computes the present log-probs before it reads the advantages, which may thus depend on them
            self._micro_batch = inputs, weighted
        try:
            return super()._compute_loss(model, weighted)
        finally:
            self._micro_batch = None

    def _credit_micro_batch(
        self, inputs: dict, weighted: dict, log_probs: torch.Tensor, entropies: torch.Tensor
    ) -> None:
        known = {"log_probs": log_probs.detach(), "entropies": entropies.detach()}
        old = inputs.get("old_per_token_logps", known["log_probs"])  # absent while the policy is the rollout's
        tokens = self._tokens(inputs, **known, old_log_probs=old)
        credit = checked_credit(self.token_credit, "of_micro_batch", tokens)
        if credit is not None:
            _weigh(weighted, tokens.padded(credit.weights))
            self._log_credit(credit.metrics)

    def _may_exchange_rows(self) -> bool:
        return super()._may_exchange_rows() and not self.token_credit.credits_micro_batches

    # --- logs and records ---

    def _log_rollout(self, credit: Credit, tokens: Tokens, policy: RolloutPolicy, seconds: float) -> None:
        passes = policy.forward_passes + credit.metrics.get("extra_forward_passes", 0)
        self._log_credit(
            {
                **credit.metrics,
                "neutral": float(credit.neutral),
                **coefficient_statistics(credit.weights, tokens.advantages),
                "extra_forward_passes": float(passes),
                "seconds": seconds,
            }
        )

    def _log_credit(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            if not math.isnan(value):  # undefined in a rollout batch without contrast, say
                self._metrics["train"][f"credit/{name}"].append(value)

    def _log_columns(self, coefficients: list, advantages: list) -> None:
        """Add columns to TRL's completions table."""
        self._logs["extra"]["mean_token_coefficient"].extend(gather_object(coefficients))
        self._logs["extra"]["trained_advantage"].extend(gather_object(advantages))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "token_credit": describe_rule(self.token_credit)}


def _weigh(inputs: dict, weights: torch.Tensor) -> None:
    """Multiply the advantages of a micro-batch, (B,) or (B, T), by weights (B, T). TRL accepts both shapes."""
    advantages = inputs["advantages"]
    inputs["advantages"] = (advantages[:, None] if advantages.ndim == 1 else advantages) * weights


def _valid_tokens(batch: dict) -> torch.Tensor:
    """The tokens that the loss counts, (B, T): sampled by the policy, neither padding nor a tool's."""
    mask = batch["completion_mask"].bool()
    return mask & batch["tool_mask"].bool() if "tool_mask" in batch else mask
