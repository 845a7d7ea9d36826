"""
Micro-batches as wide as their own rows, instead of as wide as the longest of the whole rollout batch.

TRL pads all completions of a process to the longest one and runs every micro-batch at that width. Here columns that
are padding in all rows of a micro-batch are cut off before it is run, and rows of like length are put together: in a
scoring pass, and among the micro-batches of an optimiser step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import pad


PROMPT = ("prompt_ids", "prompt_mask")


@dataclass(frozen=True)
class Trim:
    """
    What may be cut off.

    Args:
        prompts (`bool`): Whether the padding before prompts may go, too. It shifts positions, which models with
            rotary embeddings do not see.
        multiple (`int`, *optional*, defaults to `1`): Of which widths must be multiples, TRL's `pad_to_multiple_of`.
    """

    prompts: bool
    multiple: int = 1

    def width(self, used: int, of: int) -> int:
        """How many of so many columns to keep, if so many are used."""
        return min(of, -(-max(1, used) // self.multiple) * self.multiple)


def pieces(
    prompt_mask: torch.Tensor, mask: torch.Tensor, size: int, trim: Trim
) -> Iterator[tuple[torch.Tensor, int, int]]:
    """
    The micro-batches of a scoring pass, the longest first.

    Args:
        prompt_mask (`torch.Tensor` of shape `(B, P)`), mask (`torch.Tensor` of shape `(B, T)`): 0 at padding.
        size (`int`): Rows in a micro-batch.
        trim (`Trim`): What may be cut off.

    Yields:
        Which rows (b,); the first column of their prompts; the number of columns of their completions.
    """
    lengths = _used(mask)
    order = torch.arange(len(lengths), device=mask.device)
    if len(lengths) > size:
        order = lengths.argsort(descending=True, stable=True)
    (_, P), T = prompt_mask.shape, mask.size(1)
    prompts = prompt_mask.sum(dim=1) if trim.prompts else torch.full_like(lengths, P)
    lengths, prompts = lengths[order].tolist(), prompts[order].tolist()
    for i, rows in zip(range(0, len(order), size), order.split(size), strict=True):
        part = slice(i, i + size)
        yield rows, P - trim.width(max(prompts[part]), P), trim.width(max(lengths[part]), T)


def score_in_pieces(
    score: Callable,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    length: int,
    size: int,
    trim: Trim,
    watcher: Callable | None = None,
    **options,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """
    `GRPOTrainer._get_per_token_logps_and_entropies` in trimmed micro-batches.

    Args:
        score (`Callable`): That method, with the model.
        input_ids, attention_mask (`torch.Tensor` of shape `(B, P + T)`), length (`int`): As it takes them; T.
        size (`int`), trim (`Trim`): As in `pieces`.
        watcher (`Callable`, *optional*): Is to make each call, see `ScoringPass.__call__`.

    Returns:
        `tuple`: What `score` returns, 0 where a micro-batch had no column.
    """
    P = input_ids.size(1) - length
    mask = attention_mask[:, P:]
    outputs, order = [], []
    for rows, first, width in pieces(attention_mask[:, :P], mask, size, trim):
        columns = slice(first, P + width)

        def call(ids=input_ids[rows, columns], attention=attention_mask[rows, columns], width=width, **more):
            return score(ids, attention, width, **{**options, **more})

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


def trimmed(batch: dict, trim: Trim) -> dict:
    """A micro-batch of the loss without the columns that are padding in all of its rows."""
    T = batch["completion_ids"].size(1)
    ((_, first, width),) = pieces(batch["prompt_mask"], batch["completion_mask"], len(batch["completion_ids"]), trim)

    def cut(name, value):
        if not isinstance(value, torch.Tensor) or value.ndim != 2:
            return value
        if name in PROMPT:
            return value[:, first:]
        return value[:, :width] if value.size(1) == T else value

    return {name: cut(name, value) for name, value in batch.items()}


def regrouped(batches: list[dict], per_step: int) -> list[dict]:
    """
    The micro-batches of a rollout batch with the rows of each optimiser step's sorted by length, longest first. Rows
    without a token are spread evenly: TRL logs means over micro-batches, also over one that is empty.
    """
    result = []
    for i in range(0, len(batches), per_step):
        step = batches[i : i + per_step]
        sizes = [len(batch["completion_mask"]) for batch in step]
        lengths = torch.cat([_used(batch["completion_mask"]) for batch in step])
        order = lengths.argsort(descending=True, stable=True)
        rows, empty = order[lengths[order] > 0], order[lengths[order] == 0]
        ends = [len(empty) * (k + 1) // len(step) for k in range(len(step))]
        shares = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        filled = rows.split([size - share for size, share in zip(sizes, shares, strict=True)])
        order = [torch.cat(parts) for parts in zip(filled, empty.split(shares), strict=True)]
        whole = {
            name: torch.cat([batch[name] for batch in step])
            for name, value in step[0].items()
            if isinstance(value, torch.Tensor) and value.ndim
        }
        result += [
            {**batch, **{name: value[chosen] for name, value in whole.items()}}
            for batch, chosen in zip(step, order, strict=True)
        ]
    return result


def _used(mask: torch.Tensor) -> torch.Tensor:
    """Up to which column each row of a mask (B, T) is used: its length, where padding is on the right."""
    columns = torch.arange(1, mask.size(1) + 1, device=mask.device)
    return (mask.bool() * columns).amax(dim=1) if mask.size(1) else mask.sum(dim=1)
