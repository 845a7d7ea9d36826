"""
Micro-batches that are as wide as their own rows need, not as wide as the longest row of the whole rollout batch.

TRL pads all completions of a process to the longest one and runs every micro-batch at that width. Here, columns that
are padding in all rows of a micro-batch are cut off before it runs. Rows of similar length share a micro-batch, within
an optimiser step. Which rows share one is decided before the rollout batch is scored. So scoring and loss run the same
rows at the same width, 16-bit numbers round alike in both, and ratios are 1 at the rollout.

Two things change for the model, which must not change its results. Without the padding before prompts, it would count
positions from another column: it is given the positions that the tokens have in the whole batch. Without the padding
after completions, the last position is lower, and some models choose their rotary frequencies by that. `probe` runs
the model to find out what may be cut off.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
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
        first (`int`): The first column of their prompts.
        width (`int`): The number of columns of their completions.
    """

    rows: torch.Tensor
    first: int
    width: int


@dataclass(frozen=True)
class Trim:
    """
    What may be cut off.

    Args:
        prompts (`bool`): Whether the padding before prompts may go as well: only if the model takes positions.
        multiple (`int`, *optional*, defaults to `1`): Widths must be multiples of this, TRL's `pad_to_multiple_of`.
        limit (`int`, *optional*): Nothing is cut off batches wider than this, prompts and completions together.
    """

    prompts: bool
    multiple: int = 1
    limit: int | None = None

    def cuts(self, width: int) -> bool:
        """Whether a batch of that width may be cut."""
        return self.limit is None or width <= self.limit

    def width(self, used: int, of: int) -> int:
        """Columns to keep: those used, rounded up to a multiple, at most all."""
        return min(of, -(-max(1, used) // self.multiple) * self.multiple)


@torch.no_grad()
def probe(score: Callable, model: PreTrainedModel, multiple: int, device: torch.device, eps: float) -> Trim | None:
    """
    Find out what may be cut off a model's batches. Scores one short row with padding on both sides several times: as
    TRL does; with its positions given; with wrong positions; with other padding tokens, the last of them at the
    model's last position; and with all padding on the right. All of these have one shape, so results that should be
    equal are equal almost to the last bit. A mixture of experts computes tokens and padding together and may round
    differently: a small difference is allowed.

    Nothing is cut off batches that are wider than the model's config declares positions: "dynamic" rotary embeddings
    begin to depend on the width there.

    Args:
        score (`Callable`): Takes positions (1, P + T) or `None`, ids, mask and T, as in `score_in_pieces`.
        model (`PreTrainedModel`): The causal language model, unwrapped.
        multiple (`int`): Widths must be multiples of this.
        device (`torch.device`): Where the model computes.
        eps (`float`): Machine epsilon of the dtype that the model computes in.

    Returns:
        [`Trim`], or `None` if nothing may be cut off.
    """
    config = model.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    columns = -(-8 // multiple) * multiple  # of the prompt, and of the completion
    if limit is not None and limit < 2 * columns:
        return None
    positions = torch.arange(2 * columns, device=device)[None]
    mask = ((positions >= 3) & (positions < 2 * columns - 3)).long()
    ids = positions % config.vocab_size

    def log_probs(padding: int, positions: torch.Tensor | None) -> torch.Tensor:
        return score(positions, ids.masked_fill(mask == 0, padding), mask, columns)[0][:, : columns - 3]

    def same(one: torch.Tensor, other: torch.Tensor) -> bool:
        return bool(((one - other).abs() <= eps**0.75).all())

    plain = log_probs(0, None)
    if "position_ids" not in inspect.signature(type(model).forward).parameters:
        return Trim(False, multiple, limit) if same(plain, log_probs(1, None)) else None
    far = positions.clone()
    far[0, -1] = (limit or 2 * columns) - 1
    given = log_probs(0, positions)
    if not same(given, log_probs(1, far)):
        return None
    takes_positions = same(plain, given) and not same(plain, log_probs(0, positions // 2))
    # without padding before it, the row begins 3 columns earlier, at the same positions
    ids, mask = ids.roll(-3), mask.roll(-3)
    shifted = log_probs(0, positions.roll(-3))
    return Trim(takes_positions and same(given[:, 3:], shifted[:, :-3]), multiple, limit)


def micro_batches(lengths: torch.Tensor, order: torch.Tensor, size: int, per_step: int) -> list[torch.Tensor]:
    """
    Which rows of a rollout batch share a micro-batch, in scoring and in the loss: the rows of each optimiser step are
    sorted by length, longest first. Rows without a token are spread evenly, because TRL logs means over micro-batches
    and an empty one would count as much as a full one.

    Args:
        lengths (`torch.Tensor` of shape `(B,)`): Columns that each row uses.
        order (`torch.Tensor` of shape `(B,)`): The rows in the order in which they will be trained on.
        size (`int`): Rows in a micro-batch.
        per_step (`int`): Micro-batches of an optimiser step, among which rows may be exchanged.

    Returns:
        `list[torch.Tensor]`: The rows of each micro-batch, one optimiser step after the other.
    """
    result = []
    for step in order.split(size * per_step):
        step = step[lengths[step].argsort(descending=True, stable=True)]
        rows, empty = step[lengths[step] > 0], step[lengths[step] == 0]
        sizes = [len(part) for part in step.split(size)]
        ends = [len(empty) * end // len(step) for end in accumulate(sizes)]
        shares = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        filled = rows.split([size - share for size, share in zip(sizes, shares, strict=True)])
        result += [torch.cat(parts) for parts in zip(filled, empty.split(shares), strict=True)]
    return result


def pieces(prompt_mask: torch.Tensor, mask: torch.Tensor, together: list[torch.Tensor], trim: Trim) -> list[Piece]:
    """
    Trimmed micro-batches of a scoring call, the widest first: the first one shows how much memory a forward takes.

    Args:
        prompt_mask (`torch.Tensor` of shape `(B, P)`), mask (`torch.Tensor` of shape `(B, T)`): 0 at padding.
        together (`list[torch.Tensor]`): The rows of each micro-batch.
        trim (`Trim`): What may be cut off.
    """
    (_, P), T = prompt_mask.shape, mask.size(1)
    lengths, prompts = used(mask), prompt_mask.sum(dim=1)
    if not trim.cuts(P + T):
        lengths = torch.full_like(lengths, T)
    if not (trim.prompts and trim.cuts(P + T)):
        prompts = torch.full_like(prompts, P)
    longest = torch.stack([torch.stack([prompts[rows].max(), lengths[rows].max()]) for rows in together]).tolist()
    found = [
        Piece(rows, P - trim.width(prompt, P), trim.width(length, T))
        for rows, (prompt, length) in zip(together, longest, strict=True)
    ]
    return sorted(found, key=lambda piece: piece.first - piece.width)


def score_in_pieces(
    score: Callable, input_ids: torch.Tensor, attention_mask: torch.Tensor, length: int, plan: list[Piece], **options
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """
    `GRPOTrainer._get_per_token_logps_and_entropies`, piece by piece.

    Args:
        score (`Callable`):
            That method, taking the piece, positions (1, P + T) or `None`, and its arguments without the model.
        input_ids, attention_mask (`torch.Tensor` of shape `(B, P + T)`), length (`int`): Its arguments; T.
        plan (`list[Piece]`): The pieces.
        **options: More of its arguments, the same for all pieces.

    Returns:
        `tuple`: What the method returns for all rows; 0 in columns that were cut off.
    """
    P = input_ids.size(1) - length
    outputs = []
    for piece in plan:
        rows, first, width = piece
        columns = slice(first, P + width)
        positions = torch.arange(first, P + width, device=input_ids.device)[None] if first else None
        output = score(piece, positions, input_ids[rows, columns], attention_mask[rows, columns], width, **options)
        outputs.append([None if x is None else pad(x, (0, length - width)) for x in output[:2]] + [output[2]])
    log_probs, entropies, losses = zip(*outputs, strict=True)
    back = torch.cat([piece.rows for piece in plan]).argsort()
    return (
        torch.cat(log_probs)[back],
        None if entropies[0] is None else torch.cat(entropies)[back],
        None if losses[0] is None else torch.stack(losses).mean(),
    )


def regrouped(batches: list[dict], together: list[torch.Tensor], rows: str) -> list[dict]:
    """
    The micro-batches of a rollout batch with their rows exchanged.

    Args:
        batches (`list[dict]`): The micro-batches. Tensors and lists have an entry for each row; others are kept.
        together (`list[torch.Tensor]`): Numbers of the rows that each new micro-batch holds.
        rows (`str`): The entry with the rows' numbers.
    """
    place = torch.cat([batch[rows] for batch in batches]).argsort()
    result = [dict(batch) for batch in batches]
    for name, value in batches[0].items():
        parts = [batch[name] for batch in batches]
        for batch, chosen in zip(result, together, strict=True):
            if isinstance(value, torch.Tensor) and value.ndim:
                batch[name] = torch.cat(parts)[place[chosen]]
            elif isinstance(value, list):
                entries = [entry for part in parts for entry in part]
                batch[name] = [entries[i] for i in place[chosen].tolist()]
    return result


def used(mask: torch.Tensor) -> torch.Tensor:
    """The number of columns that each row of a mask (B, T) uses: its length where padding is on the right."""
    columns = torch.arange(1, mask.size(1) + 1, device=mask.device)
    return (mask.bool() * columns).amax(dim=1) if mask.size(1) else mask.sum(dim=1)
