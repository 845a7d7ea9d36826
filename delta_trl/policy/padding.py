"""
Forward passes over rows without their padding.

TRL pads all rows of a rollout batch to one width and runs every micro-batch at that width. Here, the rows of a
micro-batch follow each other in one row, and a prompt that rows share stands there once. Attention is computed within
each of them (`attention_within_rows`), and everything else in a decoder sees one token at a time. A model that mixes
tokens in another way runs on rows moved to the left, as wide as the longest of them. Tokens keep the positions that
TRL gives them.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad
from transformers import AttentionInterface, DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward


class Piece(NamedTuple):
    """
    A forward pass of a scoring call.

    Args:
        rows (`list[int]` of length b): Which rows of the call it scores.
        tokens (`torch.Tensor` of shape `(1, N - 1)` or `(b, width - 1)`): Which tokens from the second on are scored.
    """

    rows: list[int]
    tokens: torch.Tensor


class WithoutPadding:
    """
    Stands in for a model in `GRPOTrainer._get_per_token_logps_and_entropies`: runs it on rows without their padding,
    and gives back log-probabilities and entropies where TRL expects them.

    Args:
        model (`torch.nn.Module`): The model, as TRL calls it.
        packed (`bool`): Whether the rows follow each other in one; otherwise they are moved to the left.
        share_prompts (`bool`): Whether packed rows that follow each other have a common prompt once.
        order (`list[int]`, *optional*): The rows of the call in the order in which they are scored.

    Attributes:
        piece (`Piece`): The last forward pass, or the one in progress.
    """

    def __init__(self, model: Callable, packed: bool, share_prompts: bool, order: list[int] | None = None):
        self.model, self.packed, self.share_prompts, self._waiting = model, packed, share_prompts, order or []
        self.piece: Piece | None = None

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **options) -> Any:
        valid = attention_mask.bool()  # (b, P + T)
        if self.packed:
            repeated = repeated_prompts(valid, input_ids, labels) & self.share_prompts
            valid = valid & ~repeated
            options["rows"] = rows_of(*torch.stack([valid.sum(dim=1), repeated.sum(dim=1)]).tolist())
            kept = valid.new_ones(1, sum(length for *_, length in options["rows"]))
            mask = kept[None, None]  # of four dimensions: handed on to attention as it is
        else:
            lengths = valid.sum(dim=1)
            longest = int(lengths.max())
            # a GPU prepares kernels for each new width: there are sixteen from one power of two to the next
            step = 2 ** max(0, longest.bit_length() - 5)
            width = min(valid.size(1), -(-longest // step) * step)
            kept = torch.arange(width, device=valid.device) < lengths[:, None]
            mask = kept.long()

        def moved(values: torch.Tensor, fill: int = 0) -> torch.Tensor:
            return values.new_full(kept.shape, fill).masked_scatter(kept, values[valid])

        def moved_back(values: torch.Tensor) -> torch.Tensor:  # from the second token on, as in `FusedCausalLMOutput`
            return values.new_zeros(valid.shape).masked_scatter(valid, pad(values, (1, 0))[kept])[:, 1:]

        labels, positions = moved(labels, -100), torch.arange(valid.size(1), device=valid.device).expand_as(valid)
        rows, self._waiting = self._waiting[: len(valid)], self._waiting[len(valid) :]
        self.piece = Piece(rows, labels[:, 1:] != -100)
        output = self.model(
            input_ids=moved(input_ids), attention_mask=mask, position_ids=moved(positions), labels=labels, **options
        )
        output.log_probs = moved_back(output.log_probs)
        output.entropy = None if output.entropy is None else moved_back(output.entropy)
        return output


def repeated_prompts(valid: torch.Tensor, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """
    Which tokens (b, P + T) the row before has, too: those of its prompt. Each row keeps the last token of its prompt,
    which predicts the first of its completion.
    """
    prompt = valid & (labels == -100)
    same = (prompt[1:] == prompt[:-1]) & ((input_ids[1:] == input_ids[:-1]) | ~prompt[1:])
    return pad(same.all(dim=1), (1, 0))[:, None] & prompt & pad(prompt[:, 1:], (0, 1))


def rows_of(lengths: list[int], repeated: list[int]) -> list[tuple[int, int, int, int]]:
    """
    Of each packed row: where its prompt begins, and how much of that it shares; where its own tokens begin, and how
    many they are.
    """
    rows, prompt, start = [], 0, 0
    for length, shared in zip(lengths, repeated, strict=True):
        prompt = prompt if shared else start
        rows.append((prompt, shared, start, length))
        start += length
    return rows


def attention_within_rows(module, query, key, value, attention_mask, *, rows=None, **options):
    """
    transformers' `sdpa`, and the same for packed rows, one after the other and without a mask. A shared prompt takes
    part in the attention of each of its rows.
    """
    if rows is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    outputs = []
    for prompt, shared, start, length in rows:
        row = [x[:, :, start : start + length] for x in (query, key, value)]
        if shared:
            before = (x[:, :, prompt : prompt + shared] for x in (query, key, value))
            row = [torch.cat(parts, dim=2) for parts in zip(before, row, strict=True)]
        outputs.append(sdpa_attention_forward(module, *row, None, **options)[0][:, shared:])
    return torch.cat(outputs, dim=1), None


@torch.no_grad()
def widest_batch(
    score: Callable, without: WithoutPadding, config: PreTrainedConfig, device: torch.device, eps: float
) -> int:
    """
    Find out from three short rows, two of one prompt, whether a model computes without padding what it computes with
    it. Padding stands at the last position that the model's config declares, too: rotary embeddings may depend on the
    highest position.

    Args:
        score (`Callable`): Takes a model, ids, mask (B, P + T) and T, and returns log-probs (B, T) first.
        without ([`WithoutPadding`]): Runs the model without padding.
        config (`PreTrainedConfig`): Of its language model.
        device (`torch.device`): Where the model computes.
        eps (`float`): Machine epsilon of the dtype that the model computes in.

    Returns:
        `int`: How many columns a batch may have that runs without padding; 0 if none may.
    """
    if without.packed:
        AttentionInterface.register("sdpa", attention_within_rows)
        # of a window or a state, short rows may show too little
        attends_to_all = all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
        if config._attn_implementation != "sdpa" or not attends_to_all:
            return 0
    limit = getattr(config, "max_position_embeddings", None) or sys.maxsize
    positions = torch.arange(16, device=device).repeat(3, 1)
    first, last, shift = (torch.tensor(x, device=device)[:, None] for x in ([0, 5, 5], [11, 15, 13], [0, 0, 1]))
    mask = ((positions >= first) & (positions < last)).long()
    ids = (positions + first + shift * (positions >= 8)) % config.vocab_size
    if 16 <= limit < sys.maxsize:
        positions[:, -1] = limit - 1
    callables = without.model, partial(without.model, position_ids=positions), without
    with_padding, *others = (score(each, ids, mask, 8)[0][mask[:, 8:] == 1] for each in callables)
    agree = all((with_padding - other).abs().mean() <= eps**0.5 for other in others)
    return limit if agree else 0


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
