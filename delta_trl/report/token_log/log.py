"""
Recording token credit (`log_token_credit`): some completions with the coefficients of their tokens. `records.py`
describes the files.
"""

import io
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from accelerate.logging import get_logger
from accelerate.utils import broadcast_object_list, gather_object
from transformers import PreTrainedTokenizerBase, TrainerCallback

from ...credit import Tokens
from ...files import write_atomically
from .records import COMPLETIONS, COMPLETIONS_FILE, FOLDER
from .texts import TokenTexts
from .trackers import track


logger = get_logger(__name__)


class TokenLog(TrainerCallback):
    """
    Writes the token credit of a `DeltaGRPOTrainer` into `output_dir/token_credit`, on the main process.

    Of the first rollout batch after every `log_token_credit` optimiser steps, some completions are recorded in a file.
    Records of an earlier run in the same folder are set aside when training starts; those after the checkpoint are
    removed when it resumes.

    Args:
        trainer (`DeltaGRPOTrainer`): The trainer whose rollout batches are recorded.
        tokenizer (`PreTrainedTokenizerBase`): The policy's tokenizer.
    """

    def __init__(self, trainer, tokenizer: PreTrainedTokenizerBase):
        options = trainer.credit_args
        self.every = options.log_token_credit
        self.max_completions = options.log_token_credit_completions
        self.max_bytes = options.log_token_credit_max_mb * 1e6
        self.folder = Path(trainer.args.output_dir, FOLDER)
        self.texts = TokenTexts(tokenizer)
        self._trainer = trainer
        self._accelerator = trainer.accelerator
        self._last_step: int | None = None  # recorded
        self._warned_full = False

    def on_train_begin(self, args, state, control, **kwargs):
        last_step = None
        if self._accelerator.is_main_process:
            if state.global_step == 0:
                self._set_aside()
            for path in self.folder.glob("*.tmp"):
                path.unlink()
            steps = {int(re.search(r"\d+", path.stem)[0]): path for path in self._records()}
            for step in [step for step in steps if step >= state.global_step]:
                steps.pop(step).unlink()
            last_step = max(steps, default=None)
        [self._last_step] = broadcast_object_list([last_step])

    def _set_aside(self):
        """Rename the folder with the records of an earlier run."""
        if not self._records():
            return
        number = 1
        while (other := self.folder.with_name(f"{FOLDER}.{number}")).exists():
            number += 1
        self.folder.rename(other)
        logger.warning(f"The token credit that an earlier run has recorded is now in {other}.")

    def observe(self, batch: dict, tokens: Tokens, rewards: torch.Tensor) -> None:
        """
        Record a rollout batch if one is due. Every process must call it.

        Args:
            batch (`dict`): This process's rollout batch with its `"token_coefficients"`.
            tokens (`Tokens`): Its tokens.
            rewards (`torch.Tensor` of shape `(rows of all processes, functions)`): NaN where not scorable.
        """
        step = self._trainer.state.global_step
        if self._last_step is not None and step < (self._last_step // self.every + 1) * self.every:
            return
        self._last_step = step
        rows = gather_object(self._rows(batch, tokens, tokens.flat(batch["token_coefficients"]), rewards))
        if self._accelerator.is_main_process:
            self._write_completions([{"step": step, **row} for row in rows], step)
            track(rows, step, self._trainer)

    def _rows(self, batch: dict, tokens: Tokens, coefficients: torch.Tensor, rewards: torch.Tensor) -> list[dict]:
        """This process's share of the completions to record."""
        trainer = self._trainer
        firsts = tokens.mask.int().argmax(dim=1, keepdim=True)  # the first token of each response
        advantages = tokens.padded(tokens.advantages).gather(1, firsts)[:, 0]
        advantages = self._accelerator.gather(advantages).cpu().numpy()
        first, n_rows = self._accelerator.process_index * len(tokens.mask), len(tokens.mask)
        total = (rewards * trainer.reward_weights.cpu()).nansum(dim=1)  # as in TRL
        known = {name: getattr(tokens, name) if tokens.knows(name) else None for name in ("log_probs", "entropies")}
        rows = []
        for row in choose_rows(advantages, trainer.num_generations, self.max_completions):
            i = row - first
            if not 0 <= i < n_rows:
                continue
            by_function = [None if value != value else value for value in rewards[row].tolist()]
            mine = tokens.row == i
            ids = tokens.ids[mine].tolist()
            rows.append(
                {
                    "prompt_index": row // trainer.num_generations,
                    "prompt": self._text(batch, "prompt", i),
                    "completion": self._text(batch, "completion", i),
                    "reward": total[row].item() if any(value is not None for value in by_function) else None,
                    "rewards": list(zip(trainer.reward_func_names, by_function, strict=True)),
                    "advantage": advantages[row].item(),
                    "token_ids": ids,
                    "tokens": self.texts.of_sequence(ids),
                    "coefficients": coefficients[mine].tolist(),
                    **{name: None if values is None else values[mine].tolist() for name, values in known.items()},
                }
            )
        return rows

    def _text(self, batch: dict, name: str, i: int) -> str:
        # padding is skipped with the special tokens; the mask would also hide completions that are cut off
        return self.texts.decode(batch[f"{name}_ids"][i].tolist(), skip_special_tokens=True)

    def _records(self) -> list[Path]:
        return list(self.folder.glob("token_credit_*.parquet"))

    def _write_completions(self, rows: list[dict], step: int) -> None:
        data = serialize(pa.Table.from_pylist(rows, COMPLETIONS))
        if sum(path.stat().st_size for path in self._records()) + len(data) <= self.max_bytes:
            write_atomically(data, self.folder / COMPLETIONS_FILE.format(step=step))
        elif not self._warned_full:
            self._warned_full = True
            logger.warning(
                f"The completions recorded in {self.folder} have reached log_token_credit_max_mb="
                f"{self.max_bytes / 1e6:g}: what does not fit is left out from step {step} on."
            )


def choose_rows(advantages: np.ndarray, group_size: int, limit: int) -> list[int]:
    """
    At most `limit` rows of a rollout batch: whole groups, those with winners and losers first; of a group larger than
    `limit`, the best and worst rows.
    """
    groups = advantages.reshape(-1, group_size)
    contrast = (groups > 0).any(axis=1) & (groups < 0).any(axis=1)
    order = np.argsort(~contrast, kind="stable")
    if limit < group_size:
        ranked = np.argsort(-groups[order[0]], kind="stable")
        rows = order[0] * group_size + np.stack([ranked, ranked[::-1]], axis=1).ravel()[:limit]
    else:
        rows = order[: limit // group_size, None] * group_size + np.arange(group_size)
    return sorted(rows.ravel().tolist())


def serialize(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
