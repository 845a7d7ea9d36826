"""
`DeltaGRPOTrainer`: TRL's `GRPOTrainer` with token credit, by default DelTA's (arXiv 2605.21467).

Small overrides, no method copied:
- `_generate_and_score_completions` asks the rule for the credit of a rollout batch, the entry `"token_coefficients"`;
- `_compute_loss` multiplies the advantages by it, and by what the rule says of the micro-batch;
- `_get_per_token_logps_and_entropies` trims micro-batches, and shows a scoring pass, once, to who has asked for it;
- `_calculate_rewards` remembers them;
- `_prepare_inputs` puts the rows into the micro-batches in which they were scored, those of like length together;
- `create_accelerator_and_postprocess` keeps log-probabilities in float32 under FSDP2;
- `train` resumes from complete checkpoints, with their run's settings, and keeps other processes out of its folder;
- `_run_epoch` takes no step beyond the last one;
- `_save_checkpoint` and `_load_optimizer_and_scheduler` take along the state of the rule and of the token log;
  `_save_rng_state` has the processes wait for each other; errors of `_save_checkpoint` and `save_model` name the disk.
"""

import inspect
import json
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path

import torch
from accelerate.logging import get_logger
from accelerate.utils import broadcast_object_list, gather_object
from torch.nn.functional import pad
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, has_length
from trl import GRPOConfig, GRPOTrainer
from trl.extras.profiling import profiling_decorator
from trl.trainer.utils import get_config_model_id

from ..arguments.recipe_file import is_true
from ..credit import Credit, TokenCredit, Tokens, coefficient_statistics, make_rule
from ..credit.rule import check_hooks, credit_micro_batch, credit_rollout
from ..data.columns import check_datasets, refuse_chats_without_template
from ..files import ENTROPY_STATE, LAST_FILE, FolderLock, begin_checkpoint, names_disk, write_json
from ..policy.cache import choose_placement
from ..policy.padding import Trim, micro_batches, probe, regrouped, score_in_pieces, used
from ..policy.recorder import ScoringPass, get_rng_states, replayed_rng
from ..policy.source import PolicyScorer, RolloutPolicy, has_images
from ..report.token_log.log import TokenLog
from ..rewards.failures import explain_failures
from ..rewards.grader.extraction import message_text
from .avg_at_k import ReportsAvgAtK
from .checkpoints import resolve_resume
from .compatibility import (
    keep_log_probs_precise,
    refuse_missing_targets,
    refuse_missing_vllm,
    refuse_what_hides_states,
    splits_do_not_matter,
    warn_of_missing_processes,
    warn_of_sampling,
    why_credit_is_ignored,
)
from .config import (
    CreditArguments,
    DeltaGRPOConfig,
    optimiser_steps_per_rollout,
    refuse_too_few_rows,
    scores_rollouts,
    warn_of_checkpoints_inside_a_rollout,
)
from .contrast import ContrastWatch
from .model_card import WritesModelCard
from .settings import record_settings


logger = get_logger(__name__)

RULE_STATE = "token_credit.pt"  # in a checkpoint
# Of a rollout batch's rows, which TRL shuffles
ROWS, TOTAL_REWARDS, GROUPS = "rollout_rows", "token_credit_rewards", "token_credit_groups"


class DeltaGRPOTrainer(ReportsAvgAtK, WritesModelCard, GRPOTrainer):
    """
    Drop-in for [`~trl.GRPOTrainer`] that gives every token credit of its own, by default DelTA's.

    Takes the arguments of [`~trl.GRPOTrainer`] and `token_credit`. With a plain [`~trl.GRPOConfig`] as `args` the
    options of [`CreditArguments`] keep their defaults and everything else is as given; where its loss would ignore
    token credit, there is none, and a warning. Evaluation is `GRPOTrainer`'s and also reports `eval_avg_at_k`, see
    [`ReportsAvgAtK`]. The model card says what was done, see [`WritesModelCard`].

    When TRL scores old log-probabilities itself (several optimiser steps per rollout batch, or vLLM with
    importance-sampling correction), coefficients cost no forward pass; otherwise one no-grad pass per rollout batch.
    See docs/cost.md; docs/rules.md lists the metrics that are logged under `credit/`.

    Args:
        token_credit ([`~credit.TokenCredit`] or `str`, *optional*):
            How tokens are credited: an instance, or a name as in `args.token_credit`, which it replaces.
        *other_args, **kwargs: Those of [`~trl.GRPOTrainer`].

    Raises:
        ValueError: At construction, if token credit is given twice, or cannot work with the model or the arguments.

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
    _name = "DelTA"

    def __init__(
        self,
        model,
        reward_funcs=None,
        args: GRPOConfig | None = None,
        train_dataset=None,
        eval_dataset=None,
        *other_args,
        token_credit: TokenCredit | str | None = None,
        **kwargs,
    ):
        if args is None:
            name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = DeltaGRPOConfig(f"{name.split('/')[-1]}-DelTA")
        self.credit_args = args if isinstance(args, CreditArguments) else CreditArguments()
        self.token_credit = _choose_rule(token_credit, self.credit_args)
        ignored = why_credit_is_ignored(args)
        if ignored and (self.token_credit.credits_rollouts or self.token_credit.credits_micro_batches):
            if token_credit is not None or isinstance(args, CreditArguments):
                raise ValueError(ignored)
            logger.warning(f"Trains without token credit, as GRPOTrainer does. {ignored}")  # nobody has asked for any
            self.token_credit = TokenCredit()
        needs = self.token_credit.requirements()
        self._keeps_hidden = needs.hidden_states > 0
        # what is to be shown the next scoring call, in place of which it makes that call; once
        self._watcher: Callable | None = None
        self._rehearsed: set[Callable] = set()  # hooks in which all ranks were seen to do the same
        self._rewards = torch.zeros(0)  # of all processes' rows by function, the last ones; NaN if missing
        self._contrast = ContrastWatch()
        refuse_missing_vllm(args)
        given = inspect.signature(GRPOTrainer).bind(
            model, reward_funcs, args, train_dataset, eval_dataset, *other_args, **kwargs
        )
        # which may give rewards more than the data's columns; environments even make the prompts
        samples, environments = (given.arguments.get(name) for name in ("rollout_func", "environment_factory"))
        if environments is None:
            rewards = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
            evaluated = eval_dataset if args.eval_strategy != "no" else None
            check_datasets(train_dataset, evaluated, None if samples else rewards)
        if has_length(train_dataset):
            refuse_too_few_rows(args, len(train_dataset))
        super().__init__(model, reward_funcs, args, train_dataset, eval_dataset, *other_args, **kwargs)
        if samples is None and environments is None:
            refuse_chats_without_template(train_dataset, self.processing_class)
        if given.arguments.get("peft_config"):  # an adapter that there was may have been made for several models
            refuse_missing_targets(self.accelerator.unwrap_model(self.model))
        self.reward_funcs = [
            explain_failures(func, name) for func, name in zip(self.reward_funcs, self.reward_func_names, strict=True)
        ]
        # of the process that writes
        self.folder_lock = FolderLock(Path(self.args.output_dir)) if self.is_world_process_zero() else nullcontext()
        # of the rollout batch's rows, in which they are to be trained with; drawn when they are scored
        self._order: torch.Tensor | None = None
        self._scorer = PolicyScorer(
            lambda: self.model,
            self._watched,
            self.accelerator,
            self.args,
            lambda: self._trim,
            self._together,
        )
        may_recompute = needs.recomputable and not self._is_vlm
        self._placement = choose_placement(self.credit_args.hidden_state_cache, self.accelerator.device, may_recompute)
        if self._keeps_hidden:
            _ = self._scorer.backbone  # which must be there
            refuse_what_hides_states(self.args, self.is_fsdp_enabled)
        self.token_credit.check(self)
        for warning in (
            *warn_of_missing_processes(self.args.world_size),
            *warn_of_checkpoints_inside_a_rollout(self.args),
            *warn_of_sampling(self),
        ):
            logger.warning(warning)
        for callback in list(self.callback_handler.callbacks):
            if type(callback).__name__ == "NotebookProgressCallback":  # where transformers has found a notebook
                from .notebook import NotebookProgress

                self.remove_callback(callback)
                self.add_callback(NotebookProgress)
        self._token_log: TokenLog | None = None
        if self.credit_args.log_token_credit:
            vocab_size = self._scorer.model.config.get_text_config().vocab_size
            self._token_log = TokenLog(self, self._tokenizer, vocab_size)
            self.add_callback(self._token_log)

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        keep_log_probs_precise(self.accelerator)  # before TRL shards a reference model

    @cached_property
    def _trim(self) -> Trim | None:
        """How micro-batches are trimmed. Asks the model, in the first rollout: under ZeRO-3 it cannot run before."""
        if not self.credit_args.trim_padding:
            return None
        device, dtype = self.accelerator.device, self._scorer.dtype or self._scorer.model.dtype
        states = get_rng_states(device)

        def score(*args):
            with replayed_rng(states, device):  # the same units are dropped in all calls
                return self._score(self.model, *args)

        with self._scorer.as_rollouts_are():
            multiple, eps = self.args.pad_to_multiple_of or 1, torch.finfo(dtype).eps
            found = probe(score, self._scorer.model, multiple, device, eps)
        if found is None:
            logger.warning(
                f"trim_padding: {type(self._scorer.model).__name__} computes something else without padding. Nothing "
                "is cut off: micro-batches are as wide as the longest completion, as in GRPOTrainer."
            )
        return found

    # --- credit of a rollout batch ---

    def _generate_and_score_completions(self, inputs):
        if not self.model.training:
            return self._generate_with_credit(inputs)
        # decided where all ranks are alike: of data with images, some have rows without
        if {"image", "images"} & inputs[0].keys():
            self._trim = None
        _ = self._trim
        self._order = None
        batch = self._generate_with_credit(inputs)
        return {**batch, ROWS: torch.arange(len(inputs), device=self.accelerator.device)}

    def _generate_with_credit(self, inputs):
        rule = self.token_credit
        if not (rule.credits_rollouts or rule.credits_micro_batches):
            return super()._generate_and_score_completions(inputs)
        if not self.model.training:
            batch = super()._generate_and_score_completions(inputs)
            if rule.credits_rollouts:
                self._log_columns([None] * len(inputs), [None] * len(inputs))
            return batch
        seen = ScoringPass(self._scorer.backbone if self._keeps_hidden else None, self._placement)
        self._watcher = seen if scores_rollouts(self.args) else None
        try:
            batch = super()._generate_and_score_completions(inputs)
        finally:  # also if a reward raises
            self._watcher = None
        rows = len(inputs) * self.accelerator.process_index + torch.arange(len(inputs), device=self.accelerator.device)
        batch |= {TOTAL_REWARDS: self._total_rewards()[rows], GROUPS: rows // self.num_generations}
        batch["advantages"] = batch["advantages"] * self._has_contrast()[batch[GROUPS]]
        if rule.credits_rollouts:
            self._credit_rollout(batch, seen)
        return batch

    def _credit_rollout(self, batch: dict, seen: ScoringPass) -> None:
        start = time.perf_counter()
        policy = RolloutPolicy(self._scorer, batch, _valid_tokens(batch), seen, self._placement, self._keeps_hidden)
        tokens = self._tokens(batch, policy=policy, **policy.known)
        credit = self._credit(credit_rollout, tokens)
        means = torch.ones_like(batch["advantages"])
        if credit is not None:
            batch["token_coefficients"] = tokens.padded(credit.weights)
            means = batch["token_coefficients"].sum(dim=1) / tokens.mask.sum(dim=1).clamp(min=1)
            self._log_rollout(credit, tokens, policy, time.perf_counter() - start)
            if self._token_log:
                self._token_log.observe(batch, tokens, self._rewards.cpu())
        # TRL's column "advantage" was filled before; what trains is advantage × coefficient
        self._log_columns(*([round(x, 4) for x in values.tolist()] for values in (means, batch["advantages"] * means)))

    def _tokens(self, batch: dict, **known) -> Tokens:
        n_groups = self.args.generation_batch_size // self.num_generations
        return Tokens(
            batch["completion_ids"],
            _valid_tokens(batch),
            batch["advantages"],
            rewards=batch[TOTAL_REWARDS],
            groups=batch[GROUPS],
            n_groups=n_groups,
            **known,
        )

    def _credit(self, hook: Callable, tokens: Tokens) -> Credit | None:
        rehearse = hook not in self._rehearsed
        self._rehearsed.add(hook)
        return hook(self.token_credit, tokens, rehearse=rehearse)

    def _calculate_rewards(self, inputs, prompts, completions, *args, **kwargs):
        self._rewards = super()._calculate_rewards(inputs, prompts, completions, *args, **kwargs)
        if self.model.training:
            contrast = self._has_contrast().any().item()
            truncated = self._metrics["train"]["completions/clipped_ratio"][-1]
            sample = message_text(completions[0])
            warning = self._contrast.see(self._rewards, self.reward_func_names, contrast, truncated, sample)
            if warning:
                logger.warning(warning)
        return self._rewards

    def _total_rewards(self) -> torch.Tensor:  # (rows of all processes,)
        """The weighted sum over reward functions as in TRL; NaN where none could score."""
        total = (self._rewards * self.reward_weights.to(self._rewards.device)).nansum(dim=1)
        return total.masked_fill(self._rewards.isnan().all(dim=1), torch.nan)

    def _has_contrast(self) -> torch.Tensor:  # (groups of all processes,)
        """
        Whether the rewards of each group differ. Where they do not, rounding leaves advantages of up to 1e-3 if a
        reward has no exact binary form, which would count as a side.
        """
        summed = self.multi_objective_aggregation == "sum_then_normalize"
        rewards = self._total_rewards()[:, None] if summed else self._rewards
        groups = rewards.view(-1, self.num_generations, rewards.size(1))
        missing = groups.isnan()
        highest = groups.masked_fill(missing, -torch.inf).amax(dim=1)
        lowest = groups.masked_fill(missing, torch.inf).amin(dim=1)
        return (highest > lowest).any(dim=1)

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
            self._metrics["train"][f"credit/{name}"].append(value)

    def _log_columns(self, coefficients: list, advantages: list) -> None:
        """Of TRL's completions table."""
        self._logs["extra"]["mean_token_coefficient"].extend(gather_object(coefficients))
        self._logs["extra"]["trained_advantage"].extend(gather_object(advantages))

    # --- in the loss ---

    def _prepare_inputs(self, generation_batch):
        buffered = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is buffered or has_images(inputs) or self._trim is None:
            return inputs
        rows, mask = (
            torch.cat([batch[name] for batch in self._buffered_inputs]) for name in (ROWS, "completion_mask")
        )
        if self._order is None:  # nothing has been scored
            self._order = rows
        self._buffered_inputs = regrouped(self._buffered_inputs, self._together(mask[rows.argsort()]), ROWS)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _compute_loss(self, model, inputs):
        if not self.model.training:
            return super()._compute_loss(model, inputs)
        weighted = dict(inputs)
        if "token_coefficients" in inputs:
            _weigh(weighted, inputs["token_coefficients"])  # weights >= 0 commute with the clipped surrogate's min
        if self.token_credit.credits_micro_batches:
            # TRL computes the present log-probs before it reads the advantages, so these may be made from those
            self._watcher = partial(self._credit_micro_batch, inputs, weighted)
        try:
            return super()._compute_loss(model, weighted)
        finally:
            self._watcher = None

    def _credit_micro_batch(self, inputs: dict, weighted: dict, score: Callable, *which):
        output = score()
        T = inputs["completion_ids"].size(1)
        log_probs, entropies = (pad(values.detach(), (0, T - values.size(1))) for values in output[:2])
        # absent on the rollout's own policy
        old_log_probs = inputs.get("old_per_token_logps", log_probs)
        tokens = self._tokens(inputs, log_probs=log_probs, old_log_probs=old_log_probs, entropies=entropies)
        credit = self._credit(credit_micro_batch, tokens)
        if credit is not None:
            _weigh(weighted, tokens.padded(credit.weights))
            self._log_credit(credit.metrics)
        return output

    # --- scoring ---

    def _together(self, mask: torch.Tensor) -> list[torch.Tensor]:
        """Which rows of the rollout batch, with this mask of completions (B, T), share a micro-batch."""
        if self._order is None:
            with torch.random.fork_rng(devices=[]):  # what TRL will draw itself, unless something else draws before
                self._order = torch.randperm(len(mask)).to(mask.device)
        looks_across = self.aux_loss_enabled or self.token_credit.credits_micro_batches
        exchange = splits_do_not_matter(self.args) and not looks_across
        per_step = min(self.args.gradient_accumulation_steps, self.args.steps_per_generation) if exchange else 1
        return micro_batches(used(mask), self._order, self.args.per_device_train_batch_size, per_step)

    @profiling_decorator  # once for all of a call's pieces
    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, *args, **kwargs):
        score = partial(self._score, model)
        watcher, self._watcher = self._watcher, None
        size = len(input_ids)
        if self.model.training and not args and not has_images(kwargs) and self._trim is not None:
            rollout = size > (kwargs.pop("batch_size", None) or size)
            rows = torch.arange(size, device=input_ids.device)
            together = self._together(attention_mask[:, -logits_to_keep:]) if rollout else [rows]
            text = (input_ids, attention_mask, logits_to_keep, together, self._trim, watcher)
            output = score_in_pieces(score, *text, **kwargs)
        elif watcher is None:
            output = score(None, input_ids, attention_mask, logits_to_keep, *args, **kwargs)
        else:
            rows = torch.arange(size, device=input_ids.device)
            call = partial(score, None, input_ids, attention_mask, logits_to_keep, *args, **kwargs)
            output = watcher(call, attention_mask[:, -logits_to_keep:], rows, logits_to_keep)
        if isinstance(watcher, ScoringPass):
            watcher.log_probs, watcher.entropies, _ = output
        return output

    def _score(self, model, positions, *args, **kwargs):
        """As `GRPOTrainer` scores, unprofiled; with tokens at these positions, if they are given."""
        model = model if positions is None else partial(model, position_ids=positions)
        return inspect.unwrap(GRPOTrainer._get_per_token_logps_and_entropies)(self, model, *args, **kwargs)

    def _watched(self, watcher: Callable | None, *args, **kwargs):
        """A scoring call that `watcher` is shown."""
        self._watcher = watcher
        try:
            return self._get_per_token_logps_and_entropies(*args, **kwargs)
        finally:
            self._watcher = None

    # --- checkpoints ---

    def train(self, resume_from_checkpoint=None, *args, **kwargs):
        steps = optimiser_steps_per_rollout(self.args)
        checkpoint = resolve_resume(resume_from_checkpoint, self.args.output_dir, steps)
        if checkpoint is None and is_true(resume_from_checkpoint):
            raise ValueError(f"resume_from_checkpoint=True: no complete checkpoint under {self.args.output_dir!r}.")
        self.token_credit.load_state_dict({})  # it may have been trained with before
        done = json.loads((checkpoint / LAST_FILE).read_text())["global_step"] if checkpoint else None
        with self.folder_lock:
            if self.is_world_process_zero():
                record_settings(self, checkpoint)
            output = super().train(None if checkpoint is None else str(checkpoint), *args, **kwargs)
        if output.global_step == done:
            logger.warning(
                f"Nothing was left to train: {checkpoint} has all {done} optimiser steps. Raise max_steps (or "
                "num_train_epochs) to go on."
            )
        return output

    def _run_epoch(self, *args, **kwargs):
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(*args, **kwargs)
        else:  # transformers looks after each step, and would take one more
            self.control.should_training_stop = True

    def _save_checkpoint(self, model, trial):
        # before the rest: a checkpoint counts as complete once its last file, trainer_state.json, is written
        folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        with names_disk(folder):
            if self.args.should_save:
                begin_checkpoint(folder)
            self.accelerator.wait_for_everyone()
            if self._token_log:
                self._token_log.save(folder)
            state = self.token_credit.state_dict()
            if state and self.args.should_save:
                torch.save({"rule": _name_of(self.token_credit), "state": state}, folder / RULE_STATE)
            if self.use_adaptive_entropy and self.args.should_save:  # what TRL writes when it is all over
                entropy = {"entropy_coef": self.entropy_coef, "last_world_entropy": self._last_world_entropy}
                write_json(entropy, folder / ENTROPY_STATE)
            super()._save_checkpoint(model, trial)

    def save_model(self, output_dir=None, _internal_call=False):
        with names_disk(Path(output_dir or self.args.output_dir)):
            super().save_model(output_dir, _internal_call=_internal_call)

    def _save_rng_state(self, output_dir):
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()  # or the last file could be there before another process's own

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if self._token_log and checkpoint is not None:
            self._token_log.load(Path(checkpoint))
        saved = None
        if checkpoint is not None and self.accelerator.is_main_process and Path(checkpoint, RULE_STATE).is_file():
            saved = torch.load(Path(checkpoint, RULE_STATE), map_location="cpu")
        [saved] = broadcast_object_list([saved])  # which nodes without a common file system do not all have
        name = _name_of(self.token_credit)
        if saved is not None and _public(saved["rule"]) == name:
            self.token_credit.load_state_dict(saved["state"])
        elif saved is not None:
            logger.warning(f"{checkpoint} holds the state of {saved['rule']}: {name} starts without one.")


def _name_of(rule: TokenCredit) -> str:
    return _public(f"{type(rule).__module__}.{type(rule).__qualname__}")


def _public(name: str) -> str:
    """Our own rules as `delta_trl.credit.NAME`, in whichever module they lie and lay in earlier versions."""
    return re.sub(r"^(delta_trl\.credit)\..+\.", r"\1.", name)


def _choose_rule(token_credit: TokenCredit | str | None, args: CreditArguments) -> TokenCredit:
    if token_credit is None:
        return args.make_rule()
    if args.token_credit != "delta" or args.token_credit_kwargs:
        raise ValueError(
            f"token_credit={token_credit!r} is given beside args.token_credit={args.token_credit!r}, "
            f"args.token_credit_kwargs={args.token_credit_kwargs!r}. Give one of them."
        )
    rule = make_rule(token_credit) if isinstance(token_credit, str) else token_credit
    if not isinstance(rule, TokenCredit):
        raise ValueError(
            f"token_credit={token_credit!r}: expected an instance of delta_trl.credit.TokenCredit, such as "
            "DelTA(lambda_max=1.5), or a name."
        )
    check_hooks(rule)
    args.check_rule(rule)
    return rule


def _weigh(inputs: dict, weights: torch.Tensor) -> None:
    """Multiply the advantages of a micro-batch, (B,) or (B, T), by weights (B, T): TRL takes these from subclasses."""
    advantages = inputs["advantages"]
    inputs["advantages"] = (advantages[:, None] if advantages.ndim == 1 else advantages) * weights


def _valid_tokens(batch: dict) -> torch.Tensor:
    """The tokens that the loss counts, (B, T): sampled by the policy, neither padding nor a tool's."""
    mask = batch["completion_mask"].bool()
    return mask & batch["tool_mask"].bool() if "tool_mask" in batch else mask
