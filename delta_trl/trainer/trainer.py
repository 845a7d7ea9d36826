"""
`DeltaGRPOTrainer`: TRL's `GRPOTrainer` with token credit, by default DelTA's (arXiv 2605.21467).

What happens to a rollout batch is all in `_generate_and_score_completions`: TRL generates, rewards and scores it; the
rule of token credit weighs its tokens; the advantages become one for each token, (B, T), which TRL's loss takes as
they are. Nothing is copied from TRL. The base classes work on any `GRPOTrainer`.
"""

import math
import time

import torch
from trl import GRPOConfig, GRPOTrainer

from ..credit import Credit, TokenCredit, Tokens, checked_credit, coefficient_statistics
from ..report.token_log.log import TokenLog
from ..rewards.registry import with_names
from ..scoring.padding_free import PaddingFree
from ..scoring.prompts import stop_tokens
from ..scoring.rollout import RolloutPolicy, new_recorder, trl_scores_rollouts
from .checked_rewards import CheckedRewards
from .checkpoints import SafeCheckpoints
from .checks import warn_of_silent_mistakes
from .config import CreditArguments, DeltaGRPOConfig
from .credit_rule import RuleOnRecord, choose_rule
from .dynamic_sampling import stands_out, total_rewards
from .finite_updates import FiniteUpdates


class DeltaGRPOTrainer(
    RuleOnRecord,
    PaddingFree,
    FiniteUpdates,  # before a checkpoint is begun
    SafeCheckpoints,
    CheckedRewards,  # with dynamic sampling last: the others see the groups that are trained, not the rounds
    GRPOTrainer,
):
    """
    Drop-in for [`~trl.GRPOTrainer`] that gives every token credit of its own, by default DelTA's.

    Takes the arguments of [`~trl.GRPOTrainer`] and `token_credit`. With a plain [`~trl.GRPOConfig`] as `args`, the
    options of [`CreditArguments`] keep their defaults. If its loss would ignore token credit, the trainer warns and
    gives none. The trainer also warns about other silent mistakes, see `trainer/checks.py`.

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
            args = DeltaGRPOConfig()
        self.credit_args = args if isinstance(args, CreditArguments) else CreditArguments()
        self.trim_padding = self.credit_args.trim_padding
        self.dynamic_sampling = self.credit_args.dynamic_sampling
        self.dynamic_sampling_max_rounds = self.credit_args.dynamic_sampling_max_rounds
        self._use_rule(choose_rule(token_credit, self.credit_args, args))
        super().__init__(model, with_names(reward_funcs), args, *other_args, **kwargs)
        # TRL masks what follows an EOS token only; after any other stop token it would train on padding
        self.eos_token_ids = list(dict.fromkeys([*self.eos_token_ids, *stop_tokens(self.args)]))
        warn_of_silent_mistakes(self)
        new_recorder(self, self.token_credit.needs_hidden_states)  # raises if the model shows none
        self.token_credit.check(self)
        self.checkpoint_parts.append(self.token_credit)
        if self.dynamic_sampling:
            self.checkpoint_parts.append(self.prompt_order)
        self._token_log: TokenLog | None = None
        if self.credit_args.log_token_credit and self.token_credit.credits_rollouts:
            self._token_log = TokenLog(self, self._tokenizer)
            self.add_callback(self._token_log)

    # --- credit of a rollout batch ---

    def _generate_and_score_completions(self, inputs):
        if not (self.model.training and self.token_credit.credits_rollouts):
            return super()._generate_and_score_completions(inputs)
        recorder = new_recorder(self, self.token_credit.needs_hidden_states)
        # Hidden states (N, d) of TRL's own scoring pass, if TRL makes one: then its first scoring call is the policy's
        with self.recording(recorder if trl_scores_rollouts(self.args) else None):
            batch = super()._generate_and_score_completions(inputs)
        start = time.perf_counter()
        policy = RolloutPolicy(self, batch, recorder)
        tokens = self._tokens(batch, policy)  # N of them, flat
        credit = checked_credit(self.token_credit, "of_rollout", tokens)
        if credit is not None:
            batch["token_coefficients"] = tokens.padded(credit.weights)  # (N,) -> (B, T)
            batch["advantages"] = tokens.padded(credit.advantages)
            self._log_rollout(credit, tokens, policy.forward_passes, time.perf_counter() - start)
            if self._token_log:
                self._token_log.observe(batch, tokens, credit, total_rewards(self, self.last_rewards))
        return batch

    def _tokens(self, batch: dict, policy: RolloutPolicy) -> Tokens:
        """The tokens of this process, with the rewards and the groups of their rows."""
        every_row = torch.arange(len(self.last_rewards), device=self.accelerator.device)
        own = self._own_part(len(every_row))
        rewards = total_rewards(self, self.last_rewards)[own]
        is_rounding = ~stands_out(self, self.last_rewards)[own]  # which makes no winner or loser
        batch["advantages"] = batch["advantages"].masked_fill(is_rounding, 0.0)
        groups = every_row[own] // self.num_generations
        seed = (self.args.seed, self.state.global_step)
        return Tokens.of_batch(batch, policy, rewards=rewards, groups=groups, seed=seed, **policy.known)

    # --- credit of a micro-batch, for rules that depend on how the policy has moved since the rollout ---

    def _loss_reads_all_rows(self) -> bool:
        return self.token_credit.credits_micro_batches or super()._loss_reads_all_rows()

    def _after_scoring(self, micro_batch: dict, log_probs: torch.Tensor, entropies: torch.Tensor) -> None:
        if not (self.model.training and self.token_credit.credits_micro_batches):
            return
        old = micro_batch.get("old_per_token_logps", log_probs)  # absent while the policy is the rollout's
        tokens = Tokens.of_batch(micro_batch, log_probs=log_probs, old_log_probs=old, entropies=entropies)
        credit = checked_credit(self.token_credit, "of_micro_batch", tokens)
        if credit is not None:
            micro_batch["advantages"] = tokens.padded(credit.advantages)
            self._log_credit(credit.metrics)

    # --- logs ---

    def _log_credit(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            if not math.isnan(value):  # undefined in a batch without contrast, say
                self._metrics["train"][f"credit/{name}"].append(value)

    def _log_rollout(self, credit: Credit, tokens: Tokens, forward_passes: int, seconds: float) -> None:
        rows_that_train = tokens.padded(credit.advantages).any(dim=1)  # (B,)
        trains = self.accelerator.gather(rows_that_train).view(-1, self.num_generations).any(dim=1)  # by group
        self._log_credit(
            {
                **credit.metrics,
                "neutral": float(credit.neutral),
                **coefficient_statistics(credit.weights, tokens.advantages),
                "no_advantage": 1 - trains.float().mean().item(),
                "extra_forward_passes": forward_passes + credit.metrics.get("extra_forward_passes", 0.0),
                "seconds": seconds,
            }
        )
