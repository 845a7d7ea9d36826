"""
Which rows of a rollout batch run, and in which order: rows of one prompt beside each other, without those that train
nothing. Scoring and loss run the same micro-batches.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from .callables import runs_foreign_code
from .layouts import Layouts
from .models import autocast_dtype, causal_model, has_images
from .rollout import PLACE, SCORED, ScoringCall


SCORING = {"_get_per_token_logps_and_entropies"}
LOSS = {"compute_loss", "_compute_loss", *SCORING}  # methods that may read all rows


# --- the order of rows ---


def random_order(trainer: GRPOTrainer, n_rows: int) -> torch.Tensor:  # (B,)
    """Rows are assigned to optimiser steps at random; within a step, rows of one prompt are adjacent."""
    args = trainer.args
    generator = torch.Generator().manual_seed(args.seed + trainer.state.global_step)
    order = torch.randperm(n_rows, generator=generator)
    if not prompts_stay_together(trainer):
        return order
    batches_in_a_step = math.gcd(args.steps_per_generation, args.gradient_accumulation_steps)
    steps = order.split(batches_in_a_step * args.per_device_train_batch_size)
    return torch.cat([rows.sort().values for rows in steps])


def prompts_stay_together(trainer: GRPOTrainer) -> bool:
    """Whether rows of a prompt follow each other. Not where a loss depends on which rows are in a micro-batch."""
    return trainer.loss_type != "bnpo" and not _reads_entropies_or_routers(trainer)


def in_order(batches: list[dict], order: torch.Tensor) -> dict:
    """One batch with the rows of all `batches`, in the order (B,). What is no tensor or list of rows stays."""
    whole = dict(batches[0])
    for name, value in whole.items():
        parts = [batch[name] for batch in batches]
        if isinstance(value, torch.Tensor) and value.ndim:
            whole[name] = torch.cat(parts)[order]
        elif isinstance(value, list):
            rows = [row for part in parts for row in part]
            whole[name] = [rows[i] for i in order.tolist()]
    return whole


def micro_batches_in_order(batches: list[dict]) -> list[dict]:
    """The micro-batches of a rollout batch as they were scored, whatever the order that TRL has given their rows."""
    places = torch.cat([batch[PLACE] for batch in batches])
    if places.diff().ge(0).all():
        return batches
    return split_tensor_dict(in_order(batches, places.argsort()), len(batches))


# --- the rows that run ---


def loss_reads_all_rows(trainer: GRPOTrainer, layouts: Layouts) -> bool:
    """Whether the loss depends on rows without advantage, or may do so in code of others."""
    if trainer.beta or layouts.random or runs_foreign_code(trainer, LOSS):
        return True
    return _reads_entropies_or_routers(trainer)


def trl_reads_scores(trainer: GRPOTrainer) -> bool:
    """Whether the log-probabilities of a rollout batch are read before its advantages are known."""
    corrects = trainer.use_vllm and trainer.vllm_importance_sampling_correction
    return corrects or runs_foreign_code(trainer, SCORING)


def _reads_entropies_or_routers(trainer: GRPOTrainer) -> bool:
    return bool(trainer.top_entropy_quantile < 1 or trainer._entropy_bonus_enabled or trainer.aux_loss_enabled)


def shortest_row(attention_mask: torch.Tensor) -> torch.Tensor:  # (b, P + T) -> (1,)
    """What runs where nothing trains: every process makes the same number of passes."""
    return attention_mask.sum(dim=1).argmin()[None]


def rows_of_loss(trainer: GRPOTrainer, micro_batch: dict, attention_mask: torch.Tensor) -> torch.Tensor:  # (n,)
    """
    The rows that the loss runs: those with an advantage that is not 0.

    In 16 bit, a row's log-probabilities change with the number of tokens beside it. Where they are compared with old
    ones, a micro-batch thus runs as it was scored, or no row of it trains. Ratios stay exactly 1.
    """
    advantages = micro_batch["advantages"]  # (b,) or (b, T)
    runs = advantages.reshape(len(advantages), -1).any(dim=1)
    if not runs.any():
        return shortest_row(attention_mask)
    dtype = autocast_dtype(trainer) or causal_model(trainer).dtype
    if dtype != torch.float32 and "old_per_token_logps" in micro_batch:
        runs = micro_batch.get(SCORED, torch.ones_like(runs))
    return runs.nonzero()[:, 0]


# --- a call of TRL's scoring method ---


def run_scoring_call(
    trainer: GRPOTrainer,
    layouts: Layouts,
    score: Callable,
    call: ScoringCall,
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    logits_to_keep: int,
    *arguments: Any,
    **options: Any,
) -> tuple:
    """
    Run TRL's scoring method on the rows of a call, in the layout of the model. Returns what TRL's method does.

    Args:
        trainer ([`~trl.GRPOTrainer`]), layouts ([`Layouts`]): Whose call it is, and the layout of its policy's rows.
        score (`Callable`): TRL's method, with the arguments that follow.
        call ([`ScoringCall`]): What it is called for.
    """
    layout = None if has_images(options) else layouts.of_call(model, input_ids)
    tokens = attention_mask[:, -logits_to_keep:]  # (b, T)
    if call.may_wait and layout:
        call.waits = True
        return torch.zeros_like(tokens, dtype=torch.float32), None, None
    rows = _rows_of_call(trainer, layouts, call, attention_mask) if layout else torch.arange(len(input_ids))
    rows = rows.to(input_ids.device)
    if call.recorder is not None:
        options["compute_entropy"] = True  # the fused LM head computes them anyway
        if call.rollout is not None:
            call.recorder.expect(rows, tokens)
    stand_in = layouts.stand_in(model, layout, call.recorder)
    log_probs, entropies, aux_loss = score(
        stand_in, input_ids[rows], attention_mask[rows], logits_to_keep, *arguments, **options
    )
    layouts.give_up(layout, stand_in)
    # Rows left out get their old log-probabilities, a ratio of 1, and the mean entropy, which thus stays the mean
    others = (call.micro_batch or {}).get("old_per_token_logps", log_probs.new_zeros(tokens.shape))
    log_probs = others.index_copy(0, rows, log_probs)
    if entropies is not None:
        mean = entropies[tokens[rows].bool()].mean().nan_to_num()  # 0 without any token
        entropies = mean.expand(tokens.shape).index_copy(0, rows, entropies)
    if call.rollout is not None and call.recorder is not None:
        call.recorder.finish(tokens)
        call.recorder.log_probs, call.recorder.entropies = log_probs, entropies
    return log_probs, entropies, aux_loss


def _rows_of_call(
    trainer: GRPOTrainer, layouts: Layouts, call: ScoringCall, attention_mask: torch.Tensor
) -> torch.Tensor:  # (n,)
    if call.rollout is not None and len(call.rollout.order) == len(attention_mask):  # not a part of it
        return call.rollout.order
    if call.micro_batch is not None and not call.all_rows:
        return rows_of_loss(trainer, call.micro_batch, attention_mask)
    return torch.arange(len(attention_mask))
