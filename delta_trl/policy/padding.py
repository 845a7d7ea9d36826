"""
Micro-batches that are as wide as their own rows need, not as wide as the longest row of the whole rollout batch.

TRL pads all completions of a process to the longest one and runs every micro-batch at that width. Here, the columns on
the right that are padding in all rows of a micro-batch are cut off before it runs. Rows of similar length share a
micro-batch, within an optimiser step. Which rows share one is decided when the rollout batch is scored. Scoring and
loss thus run the same rows at the same width, 16-bit numbers round alike in both, and ratios are 1 at the rollout.
"""

import inspect
import sys
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import torch
from torch.nn.functional import pad
from transformers import PreTrainedModel


class Piece(NamedTuple):
    """
    A part of a scoring call whose rows are scored together.

    Args:
        rows (`torch.Tensor` of shape `(b,)`): Which rows of the call, in their order.
        width (`int`): The number of columns of their completions.
    """

    rows: torch.Tensor
    width: int


@torch.no_grad()
def widest_cut(score: Callable, model: PreTrainedModel, multiple: int, device: torch.device, eps: float) -> int:
    """
    Find out from a short row whether padding on the right affects a model's results. The row is scored twice, the
    second time with another padding token, which stands at the last position that the model's config declares:
    rotary embeddings may depend on the highest position. Both have one shape, so they differ by rounding at most. A
    mixture of experts computes tokens and padding together and may round differently: a small difference is allowed.

    Args:
        score (`Callable`): Takes positions (1, P + T) or `None`, ids, mask and T, and returns log-probs (1, T) first.
        model (`PreTrainedModel`): The causal language model, unwrapped.
        multiple (`int`): The row has a multiple of this many columns.
        device (`torch.device`): Where the model computes.
        eps (`float`): Machine epsilon of the dtype that the model computes in.

    Returns:
        `int`: How many columns a batch may have whose padding is cut off; 0 if nothing may be.
    """
    config = model.config.get_text_config()
    columns = -(-8 // multiple) * multiple  # of the prompt, and of the completion
    limit = getattr(config, "max_position_embeddings", None)
    positions = torch.arange(2 * columns, device=device)[None]
    mask = (positions < 2 * columns - 3).long()
    ids = positions % config.vocab_size
    far = None
    if limit is not None:
        if limit < 2 * columns:
            return 0
        if "position_ids" in inspect.signature(type(model).forward).parameters:
            far = positions.masked_fill(positions == 2 * columns - 1, limit - 1)
    plain = score(None, ids, mask, columns)[0]
    other = score(far, torch.where(mask == 1, ids, ids.flip(1)), mask, columns)[0]
    difference = (plain - other)[:, : columns - 3].abs()
    return (limit or sys.maxsize) if bool((difference <= eps**0.75).all()) else 0


def order_by_length(lengths: torch.Tensor, order: torch.Tensor, size: int, per_step: int) -> torch.Tensor:
    """
    The order of a rollout batch's rows in which `size` after `size` share a micro-batch: those of each optimiser step
    are sorted by length, longest first. Rows without a token are spread evenly, because TRL logs means over
    micro-batches and an empty one would count as much as a full one.

    Args:
        lengths (`torch.Tensor` of shape `(B,)`): Columns that each row uses.
        order (`torch.Tensor` of shape `(B,)`): The rows in a random order, which decides about optimiser steps.
        size (`int`): Rows in a micro-batch.
        per_step (`int`): Micro-batches in an optimiser step; 1 leaves the rows where they are.

    Returns:
        `torch.Tensor` of shape `(B,)`: Numbers of the rows.
    """
    if per_step == 1:
        return order
    result = []
    for step in order.split(size * per_step):
        step = step[lengths[step].argsort(descending=True, stable=True)]
        rows, empty = step[lengths[step] > 0], step[lengths[step] == 0]
        sizes = [len(part) for part in step.split(size)]
        ends = [len(empty) * end // len(step) for end in accumulate(sizes)]
        shares = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        filled = rows.split([size - share for size, share in zip(sizes, shares, strict=True)])
        result += [part for parts in zip(filled, empty.split(shares), strict=True) for part in parts]
    return torch.cat(result)


def pieces(mask: torch.Tensor, order: torch.Tensor, size: int, multiple: int, prompt: int) -> list[Piece]:
    """
    The micro-batches of a scoring call without common padding, the widest first: it shows how much memory they take.
    Kernels that a GPU prepares for each new shape would be prepared in every step if widths were exact.

    Args:
        mask (`torch.Tensor` of shape `(B, T)`): 0 at padding.
        order (`torch.Tensor` of shape `(B,)`): The rows, `size` after `size` together.
        size (`int`): Rows in a micro-batch.
        multiple (`int`): Prompt and completion together have a multiple of this many columns, or T of completion.
        prompt (`int`): Columns of the prompts.
    """
    lengths, T = used(mask), mask.size(1)
    together = order.split(size)
    longest = torch.stack([lengths[rows].max() for rows in together]).tolist()
    widths = [min(T, -(-(prompt + max(1, length)) // multiple) * multiple - prompt) for length in longest]
    return sorted(map(Piece, together, widths), key=lambda piece: -piece.width)


def score_in_pieces(
    score: Callable, input_ids: torch.Tensor, attention_mask: torch.Tensor, length: int, plan: list[Piece], **options
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """
    `GRPOTrainer._get_per_token_logps_and_entropies`, piece by piece.

    Args:
        score (`Callable`): That method, taking the piece and its arguments without the model.
        input_ids, attention_mask (`torch.Tensor` of shape `(B, P + T)`), length (`int`): Its arguments; T.
        plan (`list[Piece]`): The pieces.
        **options: More of its arguments, the same for all pieces.

    Returns:
        `tuple`: What the method returns for all rows; 0 in columns that were cut off.
    """
    P = input_ids.size(1) - length
    outputs = []
    for piece in plan:
        rows, end = piece.rows, P + piece.width
        output = score(piece, input_ids[rows, :end], attention_mask[rows, :end], piece.width, **options)
        outputs.append([None if x is None else pad(x, (0, length - piece.width)) for x in output[:2]] + [output[2]])
    log_probs, entropies, losses = zip(*outputs, strict=True)
    back = torch.cat([piece.rows for piece in plan]).argsort()
    return (
        torch.cat(log_probs)[back],
        None if entropies[0] is None else torch.cat(entropies)[back],
        None if losses[0] is None else torch.stack(losses).mean(),
    )


def in_order(batches: list[dict], order: torch.Tensor) -> dict:
    """One batch with the rows of all `batches`, in the order (B,). What is no tensor or list of rows stays."""
    whole = {}
    for name, value in batches[0].items():
        parts = [batch[name] for batch in batches]
        if isinstance(value, torch.Tensor) and value.ndim:
            whole[name] = torch.cat(parts)[order]
        elif isinstance(value, list):
            rows = [row for part in parts for row in part]
            whole[name] = [rows[i] for i in order.tolist()]
        else:
            whole[name] = value
    return whole


def used(mask: torch.Tensor) -> torch.Tensor:
    """The number of columns that each row of a mask (B, T) uses: its length where padding is on the right."""
    columns = torch.arange(1, mask.size(1) + 1, device=mask.device)
    return (mask.bool() * columns).amax(dim=1) if mask.size(1) else mask.sum(dim=1)
