"""
Recording token credit (`log_token_credit`): some completions with the coefficients of their tokens. `data/records.py`
describes the files.
"""

import math
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase, TrainerCallback

from ..arguments.credit import CreditArguments
from ..credit import Credit, Tokens
from ..data.records import recorded_files, token_columns, write_records
from ..scoring.models import steps_of_rollout
from ..scoring.policy import RolloutPolicy
from ..scoring.rollout import Rollout
from ..scoring.texts import TokenTexts
from .contrast import total_rewards
from .trackers import track


class LoggedTrainer(Protocol):
    """What the log needs of a trainer."""

    args: Any  # `GRPOConfig`
    state: Any
    accelerator: Any
    num_generations: int
    reward_func_names: list[str]
    reward_weights: torch.Tensor
    credit_args: CreditArguments


class TokenLog(TrainerCallback):
    """
    Writes the token credit of a `DeltaGRPOTrainer` into `output_dir/token_credit`, on the main process.

    Records some completions of the first rollout batch after every `log_token_credit` optimiser steps. When training
    starts, the records of steps that it will train again are removed: those after the checkpoint that it resumes from,
    otherwise all.

    Args:
        trainer ([`LoggedTrainer`]): The trainer whose rollout batches are recorded.
        tokenizer (`PreTrainedTokenizerBase`): The policy's tokenizer.
    """

    def __init__(self, trainer: LoggedTrainer, tokenizer: PreTrainedTokenizerBase):
        self.output_dir = Path(trainer.args.output_dir)
        self._trainer = trainer
        self._texts = TokenTexts(tokenizer)
        self._previous_step = -1  # of the rollout batch before, recorded or not

    def on_train_begin(self, args, state, control, **kwargs):
        self._previous_step = state.global_step - math.ceil(steps_of_rollout(args))
        if state.is_world_process_zero:
            for step, file in recorded_files(self.output_dir).items():
                if step >= state.global_step:
                    file.unlink()

    def observe(self, batch: dict, rollout: Rollout, policy: RolloutPolicy, tokens: Tokens, credit: Credit) -> None:
        """
        Record a rollout batch if one is due. Every process must call it.

        Args:
            batch (`dict`): This process's rollout batch.
            rollout ([`Rollout`]): What it comes from.
            policy ([`RolloutPolicy`]): Which knows the rows that were scored.
            tokens (`Tokens`): Its tokens.
            credit (`Credit`): Their credit, as `checked_credit` returns it.
        """
        step = self._trainer.state.global_step
        every = self._trainer.credit_args.log_token_credit
        due = step // every > self._previous_step // every
        self._previous_step = step
        if not due:
            return
        rows = gather_object(self._rows(batch, rollout, policy, tokens, credit, step))
        if self._trainer.accelerator.is_main_process:
            write_records(rows, self.output_dir, step)
            track(rows, step, self._trainer.args.report_to)

    def _rows(
        self, batch: dict, rollout: Rollout, policy: RolloutPolicy, tokens: Tokens, credit: Credit, step: int
    ) -> list[dict]:
        """This process's share of the completions to record."""
        trainer = self._trainer
        count = len(tokens.mask)
        of_responses = tokens.advantages.new_zeros(count)  # 0 where the loss counts no token
        of_responses[tokens.row] = tokens.advantages
        advantages = trainer.accelerator.gather(of_responses).cpu().numpy()
        group_size = trainer.num_generations
        limit = trainer.credit_args.log_token_credit_completions
        chosen = choose_rows(advantages, group_size, limit)
        fetched = [name for name in ("log_probs", "entropies") if tokens.knows(name)]
        columns = token_columns(tokens, credit, fetched)
        for name in fetched:
            columns[name][~policy.scored] = math.nan
        columns["turns"] = turn_numbers(batch)
        totals = total_rewards(trainer, rollout.rewards)
        first = trainer.accelerator.process_index * count
        records = []
        for i, ids in enumerate(rollout.reward_call.completion_ids):  # without padding
            row = first + i
            if row not in chosen:
                continue
            of_functions = map(_or_none, rollout.rewards[row].tolist())
            record = {
                "step": step,
                "prompt_index": row // group_size,
                "prompt": self._text(batch["prompt_ids"][i]),
                "completion": self._text(batch["completion_ids"][i]),
                "reward": _or_none(totals[row].item()),
                "rewards": list(zip(trainer.reward_func_names, of_functions, strict=True)),
                "advantage": advantages[row].item(),
                "token_ids": ids,
                "tokens": self._texts.of_sequence(ids),
            }
            for name, values in columns.items():
                record[name] = values[i, : len(ids)].tolist()
            records.append(record)
        return records

    def _text(self, ids: torch.Tensor) -> str:
        # padding is skipped with the special tokens; the mask would also hide completions that are cut off
        return self._texts.decode(ids.tolist(), skip_special_tokens=True)


def turn_numbers(batch: dict) -> torch.Tensor:
    """The number of each token's turn (B, T), from 1; 0 for a tool's tokens."""
    everywhere = torch.ones_like(batch["completion_ids"])
    of_policy = batch.get("tool_mask", everywhere)
    before = of_policy.roll(1, dims=1)
    before[:, 0] = 0
    begins = of_policy > before
    return begins.cumsum(dim=1) * of_policy


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def choose_rows(advantages: np.ndarray, group_size: int, limit: int) -> list[int]:
    """
    At most `limit` rows of a rollout batch: whole groups, those with winners and losers first; of a group larger than
    `limit`, the best and worst rows.
    """
    groups = advantages.reshape(-1, group_size)
    has_winners = (groups > 0).any(axis=1)
    has_losers = (groups < 0).any(axis=1)
    order = np.argsort(~(has_winners & has_losers), kind="stable")
    count = max(1, limit // group_size)
    chosen = order[:count]
    ranked = np.argsort(-groups[chosen], axis=1, kind="stable")
    size = min(limit, group_size)
    middle = slice(size - size // 2, group_size - size // 2)
    kept = np.delete(ranked, middle, axis=1)
    rows = chosen[:, None] * group_size + kept
    return sorted(rows.ravel().tolist())
