"""
Micro-batches as wide as their own rows, instead of as wide as the longest of the whole rollout batch.

TRL pads all completions of a process to the longest one and runs every micro-batch at that width. Here columns that
are padding in all rows of a micro-batch are cut off before it is run, and rows of like length are put together, among
the micro-batches of an optimiser step. Who shares a micro-batch is settled before the rollout batch is scored: scoring
and loss run the same rows at the same width, so that 16 bits round alike in both and ratios are 1 at the rollout.

What is left must not notice. Without the padding before prompts a model would count from another column: it is told
the positions that its tokens have in the whole batch. Without the padding behind completions the batch ends at a lower
position, by which some models choose their rotary frequencies. Whether a model takes positions, looks at padding or at
the last position is found out by asking it, see `probe`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch.nn.functional import pad
from transformers import PreTrainedModel


@dataclass(frozen=True)
class Trim:
    """
    What may be cut off.

    Args:
        prompts (`bool`): Whether the padding before prompts may go, too: the model can be told positions.
        multiple (`int`, *optional*, defaults to `1`): Of which widths must be multiples, TRL's `pad_to_multiple_of`.
        limit (`int`, *optional*): The widest batch, prompts and completions, of which something may be cut off.
    """

    prompts: bool
    multiple: int = 1
    limit: int | None = None

    def cuts(self, width: int) -> bool:
        """Whether a batch of that width may be cut."""
        return self.limit is None or width <= self.limit

    def width(self, used: int, of: int) -> int:
        """How many of so many columns to keep, if so many are used."""
        return min(of, -(-max(1, used) // self.multiple) * self.multiple)


@torch.no_grad()
def probe(score: Callable, model: PreTrainedModel, multiple: int, device: torch.device, eps: float) -> Trim | None:
    """
    What may be cut off of a model's batches. Scores one short row with padding on either side: as TRL does; with its
    positions spelled out; with wrong ones; and with other padding, the last of it at the model's last position. All of
    that has one shape, so that what is the same to the model is the same to the last bit. A mixture of experts, which
    puts tokens and padding together, may round otherwise, and is allowed to.

    Beyond the last position that the model's config declares, nothing is known and nothing is cut off: "dynamic"
    rotary embeddings begin to depend on the width there.

    Args:
        score (`Callable`): Of positions (1, P + T) or `None`, ids, mask, and T: what `score_in_pieces` calls.
        model (`PreTrainedModel`): The causal language model, unwrapped.
        multiple (`int`): Of which widths must be multiples.
        device (`torch.device`), eps (`float`): Where the model computes; of the dtype that it computes in.

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
    return Trim(same(plain, given) and not same(plain, log_probs(0, positions // 2)), multiple, limit)


def micro_batches(lengths: torch.Tensor, order: torch.Tensor, size: int, per_step: int) -> list[torch.Tensor]:
    """
    Which rows of a rollout batch go together, in scoring and in the loss: the rows of each optimiser step sorted by
    length, longest first. Rows without a token are spread evenly: TRL logs means over micro-batches, also over one
    that is empty.

    Args:
        lengths (`torch.Tensor` of shape `(B,)`): Columns that each row uses.
        order (`torch.Tensor` of shape `(B,)`): The rows in the order in which they are to be trained with.
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


def pieces(
    prompt_mask: torch.Tensor, mask: torch.Tensor, together: list[torch.Tensor], trim: Trim
) -> list[tuple[torch.Tensor, int, int]]:
    """
    The micro-batches of a scoring pass, the widest first.

    Args:
        prompt_mask (`torch.Tensor` of shape `(B, P)`), mask (`torch.Tensor` of shape `(B, T)`): 0 at padding.
        together (`list[torch.Tensor]`): The rows of each micro-batch.
        trim (`Trim`): What may be cut off.

    Returns:
        Of each, which rows (b,); the first column of their prompts; the number of columns of their completions.
    """
    (_, P), T = prompt_mask.shape, mask.size(1)
    lengths, prompts = used(mask), prompt_mask.sum(dim=1)
    if not trim.cuts(P + T):
        lengths = torch.full_like(lengths, T)
    if not (trim.prompts and trim.cuts(P + T)):
        prompts = torch.full_like(prompts, P)
    longest = torch.stack([torch.stack([prompts[rows].max(), lengths[rows].max()]) for rows in together]).tolist()
    found = [
        (rows, P - trim.width(prompt, P), trim.width(length, T))
        for rows, (prompt, length) in zip(together, longest, strict=True)
    ]
    return sorted(found, key=lambda piece: piece[1] - piece[2])


def score_in_pieces(
    score: Callable,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    length: int,
    together: list[torch.Tensor],
    trim: Trim,
    watcher: Callable | None = None,
    **options,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """
    `GRPOTrainer._get_per_token_logps_and_entropies` in trimmed micro-batches.

    Args:
        score (`Callable`): That method, of positions (1, P + T) or `None`, and all that it takes but the model.
        input_ids, attention_mask (`torch.Tensor` of shape `(B, P + T)`), length (`int`): As it takes them; T.
        together (`list[torch.Tensor]`), trim (`Trim`): As in `pieces`.
        watcher (`Callable`, *optional*): Is to make each call, see `ScoringPass.__call__`.

    Returns:
        `tuple`: What `score` returns, 0 where a micro-batch had no column.
    """
    P = input_ids.size(1) - length
    mask = attention_mask[:, P:]
    outputs, order = [], []
    for rows, first, width in pieces(attention_mask[:, :P], mask, together, trim):
        columns = slice(first, P + width)
        positions = torch.arange(first, P + width, device=mask.device)[None] if first else None
        inputs = (positions, input_ids[rows, columns], attention_mask[rows, columns], width)
        call = partial(score, *inputs, **options)
        output = call() if watcher is None else watcher(call, mask, rows, width)
        outputs.append([None if x is None else pad(x, (0, length - width)) for x in output[:2]] + [output[2]])
        order.append(rows)
    log_probs, entropies, losses = zip(*outputs, strict=True)
    back = torch.cat(order).argsort()
    return (
        torch.cat(log_probs)[back],
        None if entropies[0] is None else torch.cat(entropies)[back],
        None if losses[0] is None else torch.stack(losses).mean(),
    )


def regrouped(batches: list[dict], together: list[torch.Tensor], rows: str) -> list[dict]:
    """
    Micro-batches of a rollout batch made anew.

    Args:
        batches (`list[dict]`): The micro-batches. Tensors have their rows in common; scalars are of all rows.
        together (`list[torch.Tensor]`): Numbers of the rows that go together.
        rows (`str`): The entry with the rows' numbers.
    """
    whole = {
        name: torch.cat([batch[name] for batch in batches])
        for name, value in batches[0].items()
        if isinstance(value, torch.Tensor) and value.ndim
    }
    place = whole[rows].argsort()
    return [
        {**batch, **{name: value[place[chosen]] for name, value in whole.items()}}
        for batch, chosen in zip(batches, together, strict=True)
    ]


def used(mask: torch.Tensor) -> torch.Tensor:
    """Up to which column each row of a mask (B, T) is used: its length, where padding is on the right."""
    columns = torch.arange(1, mask.size(1) + 1, device=mask.device)
    return (mask.bool() * columns).amax(dim=1) if mask.size(1) else mask.sum(dim=1)
