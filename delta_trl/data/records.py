"""The files in which a run keeps its token credit: the trainer writes them, the report reads them."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ..files import write_atomically


if TYPE_CHECKING:  # the report reads without torch
    import torch

    from ..credit import Credit, Tokens


FOLDER = "token_credit"  # under `output_dir`

_TEXT = pa.string()
_INTEGERS = pa.list_(pa.int32())
_NUMBERS = pa.list_(pa.float32())

# One row per completion. Lists run over all its tokens; numbers are NaN for tokens that the loss does not count.
COMPLETIONS = pa.schema(
    {
        "step": pa.int64(),  # optimiser steps done when the completion was sampled
        "prompt_index": pa.int64(),  # of the group, within the rollout batch over all ranks
        "prompt": _TEXT,  # as the policy saw it, without special tokens
        "completion": _TEXT,  # whole, with the output of tools, without special tokens
        "reward": pa.float32(),  # weighted sum of the reward functions
        "rewards": pa.map_(_TEXT, pa.float32()),  # by reward function, null where not scorable
        "advantage": pa.float32(),  # of the response
        "token_ids": _INTEGERS,
        "tokens": pa.list_(_TEXT),  # join to the text of the ids; the last of several tokens of a character has it
        "turns": _INTEGERS,  # the number of each token's turn; 0 for a tool's tokens
        "coefficients": _NUMBERS,
        "advantages": _NUMBERS,  # which the loss reads
        "step_rewards": _NUMBERS,  # at the last token of each step; null without steps
        "log_probs": _NUMBERS,  # null if the run did not compute them; NaN in responses that it did not score
        "entropies": _NUMBERS,  # as log_probs
    }
)


def recorded_files(output_dir: Path) -> dict[int, Path]:
    """The files of a run by the step that they record, in order: one for every recorded rollout batch."""
    files = output_dir.glob(f"{FOLDER}/token_credit_*.parquet")
    by_step = {int(file.stem.rpartition("_")[2]): file for file in files}
    return dict(sorted(by_step.items()))


def write_records(rows: list[dict], output_dir: Path, step: int) -> None:
    """Write the file of a step. `rows` have the columns of `COMPLETIONS`, and perhaps others, which are left out."""
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, COMPLETIONS), buffer, compression="zstd")
    write_atomically(buffer.getvalue(), output_dir / FOLDER / f"token_credit_{step:05d}.parquet")


def token_columns(tokens: "Tokens", credit: "Credit", names: Sequence[str]) -> "dict[str, torch.Tensor]":
    """Columns (B, T) of a record: those of the credit, and `names` of the tokens. NaN for what the loss masks."""
    columns = {
        "coefficients": credit.weights,
        "advantages": credit.advantages,
    }
    if credit.step_rewards is not None:
        columns["step_rewards"] = credit.step_rewards
    for name in names:
        columns[name] = getattr(tokens, name)
    for name, values in columns.items():
        columns[name] = tokens.padded(values).masked_fill(~tokens.mask, math.nan)
    return columns
