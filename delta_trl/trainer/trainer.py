"""
`DeltaGRPOTrainer`: TRL's `GRPOTrainer` with token credit, by default DelTA's (arXiv 2605.21467).

What happens to a rollout batch is all in `_generate_and_score_completions`: TRL generates and rewards it; the rows
that will train are scored; the rule of token credit weighs their tokens; the advantages become one for each token,
(B, T), which TRL's loss takes as they are. Nothing is copied from TRL. The base classes work on any `GRPOTrainer`.
"""

import functools
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer

from ..arguments.credit import CreditArguments
from ..credit import Credit, TokenCredit, Tokens, checked_credit, coefficient_statistics
from ..credit.rule import TokenCreditError
from ..rewards.failures import explain_failures
from ..rewards.registry import with_names
from ..scoring.layouts import Layouts
from ..scoring.models import has_images, trl_scores_rollouts
from ..scoring.policy import RolloutPolicy, new_recorder
from ..scoring.prompts import stop_tokens
from ..scoring.recorder import Recorder
from ..scoring.rollout import PLACE, SCORED, RewardCall, Rollout, ScoringCall, scoring
from ..scoring.rows import (
    loss_reads_all_rows,
    micro_batches_in_order,
    prompts_stay_together,
    random_order,
    run_scoring_call,
    trl_reads_scores,
)
from .checkpoints import SafeCheckpoints
from .checks import warn_of_silent_mistakes
from .config import DeltaGRPOConfig
from .contrast import stands_out, total_rewards
from .credit_rule import HOME, PAPER, arxiv_of, card_text, choose_rule
from .dynamic_sampling import DynamicSampling, completions_of, own_part, replaced
from .finite_updates import FiniteUpdates
from .reward_watch import RewardWatch
from .token_log import TokenLog


class DeltaGRPOTrainer(FiniteUpdates, SafeCheckpoints, GRPOTrainer):
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

    _tag_names = ["trl", "grpo", "delta"]  # noqa: RUF012 (as in TRL)
    _name, _paper = "DelTA", PAPER

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        *other_args: Any,
        token_credit: TokenCredit | str | None = None,
        **kwargs: Any,
    ):
        if args is None:
            args = DeltaGRPOConfig()
        self.scoring_call = ScoringCall()
        self.credit_args = args if isinstance(args, CreditArguments) else CreditArguments()
        self.token_credit = choose_rule(token_credit, self.credit_args, args)
        self._cite_rule()  # TRL's constructor reads tags
        super().__init__(model, with_names(reward_funcs), args, *other_args, **kwargs)
        # TRL masks what follows an EOS token only; after any other stop token it would train on padding
        self.eos_token_ids: list[int] = list(dict.fromkeys([*self.eos_token_ids, *stop_tokens(self.args)]))
        warn_of_silent_mistakes(self)
        self.layouts = Layouts(self, prompts_stay_together(self))
        self.reward_watch = RewardWatch()
        self.dynamic_sampling: DynamicSampling | None = None
        self.checkpoint_parts.append(self.token_credit)
        if self.credit_args.dynamic_sampling:
            self.dynamic_sampling = DynamicSampling(self, self.credit_args.dynamic_sampling_max_rounds)
            self.checkpoint_parts.append(self.dynamic_sampling.prompt_order)
        self.new_recorder(self.token_credit.needs_hidden_states)  # raises if the model shows none
        self.token_credit.check(self)
        self.token_log: TokenLog | None = None
        if self.credit_args.log_token_credit:
            self.token_log = TokenLog(self, self._tokenizer)
            self.add_callback(self.token_log)
        kept = self._rewards_kept(self._calculate_rewards)  # a subclass's, too
        self._calculate_rewards = kept  # type: ignore[method-assign]

    # --- a rollout batch, in the order in which TRL calls these methods ---

    def _prepare_inputs(self, generation_batch):
        inputs = super()._prepare_inputs(generation_batch)
        if not (self.model.training and self.layouts.current and PLACE in inputs) or has_images(inputs):
            return inputs
        self._buffered_inputs: list[dict] = micro_batches_in_order(self._buffered_inputs)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _generate_and_score_completions(self, inputs):
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        rollout = self._begin_rollout(inputs)
        call = self._call_of(rollout)
        with scoring(self, call):
            batch = super()._generate_and_score_completions(inputs)
        self._observe_rewards(batch, rollout)
        policy = RolloutPolicy(self, batch, rollout, self._rows_to_score(batch), call.recorder)
        if call.waits:
            batch["old_per_token_logps"] = policy.score_for_trl()
        if self.token_credit.credits_rollouts:
            self._credit_rollout(batch, rollout, policy)
        batch[PLACE] = rollout.order.argsort().to(batch["advantages"].device)
        batch[SCORED] = policy.scored
        return batch

    def _generate(self, prompts):
        rollout = self.scoring_call.rollout
        if rollout is None:  # in evaluation, or sampled for another rollout
            return super()._generate(prompts)
        with completions_of(self, rollout.sampled.rows) if rollout.sampled else nullcontext():
            generated = super()._generate(prompts)
        if self.credit_args.trim_padding:
            prompt_ids, completion_ids, *_, images, _ = generated
            self.layouts.confirm(prompt_ids, completion_ids, bool(images))
        return generated

    def _calculate_rewards(self, *args, **kwargs):
        # for this call only: callbacks may change one of the functions in the list
        named = [explain_failures(*pair) for pair in zip(self.reward_funcs, self.reward_func_names, strict=True)]
        with replaced(self, "reward_funcs", named):
            return super()._calculate_rewards(*args, **kwargs)

    def _compute_loss(self, model, inputs):
        inputs = dict(inputs)  # a rule may weigh its advantages
        with scoring(self, ScoringCall(micro_batch=inputs, all_rows=self._loss_reads_all_rows())):
            return super()._compute_loss(model, inputs)

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **options
    ):
        call = self.scoring_call.taken()
        score = super()._get_per_token_logps_and_entropies
        outputs = run_scoring_call(
            self, self.layouts, score, call, model, input_ids, attention_mask, logits_to_keep, batch_size, **options
        )
        if call.micro_batch is not None and self.token_credit.credits_micro_batches and self.model.training:
            log_probs, entropies, _ = outputs
            self._credit_micro_batch(call.micro_batch, log_probs, entropies)
        return outputs

    # --- their steps ---

    def _begin_rollout(self, inputs: list[dict]) -> Rollout:
        if self.credit_args.trim_padding:
            self.layouts.before_rollout()
        rollout = Rollout(random_order(self, len(inputs)))
        if self.dynamic_sampling:
            rollout.sampled = self.dynamic_sampling.sample(len(inputs))
            inputs[:] = [row.inputs for row in rollout.sampled.rows]  # a subclass may look at them afterwards
        return rollout

    def _call_of(self, rollout: Rollout) -> ScoringCall:
        """TRL's scoring call of a rollout batch. If TRL makes one, its first is the policy's."""
        if not trl_scores_rollouts(self.args):
            return ScoringCall(rollout)
        recorder = self.new_recorder(self.token_credit.needs_hidden_states)
        return ScoringCall(rollout, recorder=recorder, may_wait=not trl_reads_scores(self))

    def _rewards_kept(self, calculate: Callable) -> Callable:
        """TRL's method or a subclass's that calculates rewards; a rollout keeps what TRL gets from it."""

        @functools.wraps(calculate)
        def kept(*call: Any) -> torch.Tensor:
            rollout = self.scoring_call.rollout
            if rollout is None:  # in evaluation, or sampled for another rollout
                return calculate(*call)
            rollout.rewards = rollout.sampled.rewards if rollout.sampled else calculate(*call)
            rollout.reward_call = RewardCall(*call)
            return rollout.rewards

        return kept

    def _observe_rewards(self, batch: dict, rollout: Rollout) -> None:
        differs = stands_out(self, rollout.rewards)  # by completion
        self.reward_watch.observe(self.reward_func_names, rollout.rewards, bool(differs.any()))
        if rollout.sampled:
            rollout.sampled.log(self)
        if self.token_credit.credits_rollouts:
            is_rounding = ~differs[own_part(self, len(rollout.rewards))]
            batch["advantages"] = batch["advantages"].masked_fill(is_rounding, 0.0)  # no winner and no loser

    def _rows_to_score(self, batch: dict) -> torch.Tensor:  # (B,)
        trains = batch["advantages"] != 0
        rule_reads_all = self.token_credit.credits_rollouts and self.token_credit.reads_all_rows
        if rule_reads_all or self._loss_reads_all_rows():
            return torch.ones_like(trains)
        return trains

    def _loss_reads_all_rows(self) -> bool:
        return self.token_credit.credits_micro_batches or loss_reads_all_rows(self, self.layouts)

    def new_recorder(self, hidden: bool) -> Recorder:
        """A recorder for one scoring pass, with hidden states or without."""
        return new_recorder(self, hidden, self.credit_args.hidden_state_cache)

    # --- token credit ---

    def _credit_rollout(self, batch: dict, rollout: Rollout, policy: RolloutPolicy) -> None:
        start = time.perf_counter()
        part = own_part(self, len(rollout.rewards))
        rewards = total_rewards(self, rollout.rewards)
        groups = torch.arange(len(rewards), device=rewards.device) // self.num_generations
        known: dict[str, Any] = {"rewards": rewards[part], "groups": groups[part], **policy.known}
        known["tokenizer"] = self._tokenizer
        tokens = Tokens.of_batch(
            batch, policy, seed=(self.args.seed, self.state.global_step), **known
        )  # N of them, flat
        credit = checked_credit(self.token_credit, "of_rollout", tokens)
        if credit is None:
            return
        batch["token_coefficients"] = tokens.padded(credit.weights)  # (N,) -> (B, T)
        batch["advantages"] = tokens.padded(credit.advantages)
        if batch["advantages"][~policy.scored].any():
            raise TokenCreditError(
                f"{self.token_credit!r} gives advantages to responses that have none, and does not read them: its "
                "`reads_all_rows` has to be True."
            )
        self._log_rollout(credit, tokens, policy.forward_passes, time.perf_counter() - start)
        if self.token_log:
            self.token_log.observe(batch, rollout, policy, tokens, credit)

    def _credit_micro_batch(self, micro_batch: dict, log_probs: torch.Tensor, entropies: torch.Tensor) -> None:
        """For rules that depend on how the policy has moved since the rollout."""
        log_probs = log_probs.detach()
        old = micro_batch.get("old_per_token_logps", log_probs)  # absent while the policy is the rollout's
        known = {"log_probs": log_probs, "old_log_probs": old, "entropies": entropies.detach()}
        tokens = Tokens.of_batch(micro_batch, tokenizer=self._tokenizer, **known)
        credit = checked_credit(self.token_credit, "of_micro_batch", tokens)
        if credit is not None:
            micro_batch["advantages"] = tokens.padded(credit.advantages)
            self._log_credit(credit.metrics)

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

    # --- what a run says of its rule ---

    def _cite_rule(self) -> None:
        if arxiv_of(self.token_credit) != PAPER["id"]:
            self._tag_names = [tag for tag in self._tag_names if tag != "delta"]
            if self._paper is PAPER:  # a subclass may have its own
                self._name, self._paper = GRPOTrainer._name, GRPOTrainer._paper

    def create_model_card(self, *args, **kwargs):
        super().create_model_card(*args, **kwargs)
        if self.is_world_process_zero():
            with Path(self.args.output_dir, "README.md").open("a", encoding="utf-8") as card:
                card.write(f"\n\n## Token credit\n\n{card_text(self.token_credit)}, with [delta_trl]({HOME})\n")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "token_credit": repr(self.token_credit)}
