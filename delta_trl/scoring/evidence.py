"""
Whether a model computes without padding what it computes with padding.

`comparisons` run the policy once, before the first rollout batch, on three short rows, two of them of one
prompt. There are two kinds of evidence:

- Runs of the same shapes are equal bit by bit, whatever the dtype: a row's log-probabilities do not depend on the
  tokens of other rows, nor on the highest position of the batch.
- Runs with and without padding agree in log-probabilities and gradients, at low and at high positions. The tolerance
  is the difference that the model's own arithmetic makes between two runs of one row with and without padding, times
  four. Autocast is off, so this is a hundred-thousandth unless the weights themselves have 16 bits.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedConfig

from .stand_in import PACKED, StandIn, layers_of


LEAST, NOISE = 1e-5, 4.0  # relative tolerance: the least, and in units of the measured noise
WIDTH, PROMPT = 16, 8  # columns of the probe, and of its prompts
NARROW = 3  # tokens of a sliding window in the probe


def comparisons(
    score: Callable, stand_in: StandIn, causal: nn.Module, parameters: list[nn.Parameter], device: torch.device
) -> Iterator[bool]:
    """
    Compare a model with its stand-in. Yields whether the runs of each comparison agree, one after the other.

    Args:
        score (`Callable`): Takes a model, ids, mask (B, P + T) and T, and returns log-probabilities (B, T) first.
        stand_in ([`StandIn`]): Runs the model without padding.
        causal (`torch.nn.Module`): The causal language model, without wrappers.
        parameters (`list[torch.nn.Parameter]`): Whose gradients are compared.
        device (`torch.device`): Where the model computes.
    """
    layout = stand_in.layout
    config, model = causal.config.get_text_config(), stand_in.model
    limit = widest_batch(config)
    ids, mask = _probe_rows(config.vocab_size, device)

    def outcome(runs: Callable, ids: torch.Tensor = ids, width: int = WIDTH) -> list[torch.Tensor]:
        """Log-probabilities of the valid tokens, and gradients of a weighted sum of them."""
        valid = mask[: len(ids), :width]
        log_probs = score(_without_autocast(runs, device), ids[:, :width], valid, width - PROMPT)[0]
        log_probs = log_probs[valid[:, PROMPT:] == 1]
        weighted = log_probs * torch.linspace(1, 2, len(log_probs), device=device)
        gradients = torch.autograd.grad(weighted.sum(), parameters, allow_unused=True) if parameters else ()
        return [log_probs.detach(), *(one for one in gradients if one is not None)]

    def at(first: int) -> Callable:
        """The model with all positions moved by `first`."""
        columns = torch.arange(WIDTH, device=device)
        return lambda position_ids=columns, **inputs: model(
            position_ids=(position_ids + first).expand_as(inputs["input_ids"]), **inputs
        )

    padded, unpadded = outcome(model), outcome(stand_in)
    # The first row begins in the first column: cut off at its end, it has no padding at all
    alone = outcome(model, ids[:1], int(mask[0].sum()))
    noise = max(LEAST, NOISE * distance(alone, outcome(model, ids[:1])))
    repeated = NOISE * distance(outcome(model)[:1], padded[:1])  # 0 unless kernels add in random order
    yield distance(unpadded, padded) <= noise
    others = ids.clone()
    others[0] = (ids[0] + 1) % config.vocab_size
    first = int(mask[0, PROMPT:].sum())  # tokens of the first row
    yield distance([outcome(stand_in, others)[0][first:]], [unpadded[0][first:]]) <= repeated
    if WIDTH <= limit < sys.maxsize:
        # Rotary embeddings may depend on the highest position, which padding has here
        highest = torch.arange(WIDTH, device=device).repeat(len(ids), 1)
        highest[:, -1] = limit - 1
        far = outcome(lambda **inputs: model(position_ids=highest, **inputs))
        yield distance(far[:1], outcome(at(0))[:1]) <= repeated
        stand_in.model = at(limit - WIDTH)
        yield distance(outcome(stand_in), outcome(stand_in.model)) <= noise
        stand_in.model = model
    if stand_in.layout == PACKED and "DynamicSlidingWindowLayer" in layers_of(config):
        with _narrow_windows(causal):
            narrow = outcome(model)
            yield distance(outcome(stand_in), narrow) <= noise
        yield distance(narrow, padded) > noise  # otherwise the windows were not narrow
    yield stand_in.layout == layout  # packed rows that do not reach all attention layers are given up


def widest_batch(config: PreTrainedConfig) -> int:
    """How many columns a batch may have: the positions that a model's config declares."""
    return getattr(config, "max_position_embeddings", None) or sys.maxsize


def distance(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """The largest relative difference of two lists of tensors. Small tensors count as a thousandth of the largest."""
    norms = torch.stack([one.float().norm() for one in theirs[1:]] or [theirs[0].norm()])
    floors = [torch.zeros_like(norms[0]), *[1e-3 * norms.max()] * (len(theirs) - 1)]
    found = [
        (a.float() - b.float()).norm() / torch.maximum(b.float().norm(), floor)
        for a, b, floor in zip(ours, theirs, floors, strict=True)
    ]
    return torch.stack(found).nan_to_num(nan=torch.inf).max().item()


def _probe_rows(vocabulary: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask (3, WIDTH) of three rows. The last two have a prompt in common."""
    columns = torch.arange(WIDTH, device=device)
    mask = torch.stack([(first <= columns) & (columns < last) for first, last in ((0, 11), (5, 15), (5, 13))])
    ids = columns.repeat(3, 1)
    ids[1:] += 5
    ids[2, PROMPT:] += 1
    return ids % vocabulary, mask.long()


def _without_autocast(runs: Callable, device: torch.device) -> Callable:
    def run(**inputs):
        with torch.autocast(device.type, enabled=False):
            return runs(**inputs)

    return run


@contextmanager
def _narrow_windows(causal: nn.Module) -> Iterator[None]:
    """The context in which the model's sliding windows are as narrow as a short row shows."""
    owners = [causal.config.get_text_config(), *causal.modules()]
    windows = [(owner, owner.sliding_window) for owner in owners if getattr(owner, "sliding_window", None)]
    for owner, _ in windows:
        owner.sliding_window = NARROW
    try:
        yield
    finally:
        for owner, window in windows:
            owner.sliding_window = window
