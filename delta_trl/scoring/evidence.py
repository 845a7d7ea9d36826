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

from .stand_in import PACKED, StandIn, layers_of, positions_of


LEAST, NOISE = 1e-5, 4.0  # relative tolerance: the least, and in units of the measured noise
MOST = 0.1  # relative: what padding changes by more is no rounding
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
    model = stand_in.model
    config = causal.config.get_text_config()
    ids, mask = _probe_rows(config.vocab_size, device)
    columns = torch.arange(WIDTH, device=device)

    def outcome(runs: Callable, ids: torch.Tensor = ids, width: int = WIDTH) -> list[torch.Tensor]:
        """Log-probabilities of the valid tokens, and gradients of the sum of their squares."""
        valid = mask[: len(ids), :width]
        log_probs, *_ = score(_without_autocast(runs, device), ids[:, :width], valid, width - PROMPT)
        of_tokens = log_probs[valid[:, PROMPT:] == 1]
        gradients = ()
        if parameters:
            gradients = torch.autograd.grad(of_tokens.square().sum(), parameters, materialize_grads=True)
        return [of_tokens.detach(), *gradients]

    def moved(shift: int | torch.Tensor) -> Callable:
        """The model with its positions moved by `shift`: all of them, or those of each column (WIDTH,)."""

        def run(position_ids=columns, **inputs):
            positions = position_ids + shift
            return model(position_ids=positions.expand_as(inputs["input_ids"]), **inputs)

        return run

    # What the model's own rounding makes of padding.
    # The first row begins in the first column: cut off at its end, it has no padding at all.
    length = int(mask[0].sum())
    without_padding = outcome(model, ids[:1], length)
    rounding = distance(without_padding, outcome(model, ids[:1]))
    yield rounding <= MOST
    noise = max(LEAST, NOISE * rounding)

    padded = outcome(model)
    unpadded = outcome(stand_in)
    yield distance(unpadded, padded) <= noise

    # Equal bits. Runs of the same shapes differ only by kernels that add in random order.
    repeated = NOISE * distance(outcome(model)[:1], padded[:1])
    others = ids.clone()
    others[0] = (ids[0] + 1) % config.vocab_size
    rest = slice(length - PROMPT, None)  # completion tokens of the other rows
    beside_others = outcome(stand_in, others)
    yield distance([beside_others[0][rest]], [unpadded[0][rest]]) <= repeated

    beyond = positions_of(config) - WIDTH
    if 0 <= beyond < sys.maxsize - WIDTH:
        # Rotary embeddings may depend on the highest position, which padding has here
        padding_beyond = beyond * (columns == WIDTH - 1)
        yield distance(outcome(moved(padding_beyond))[:1], outcome(moved(0))[:1]) <= repeated
        stand_in.model = moved(beyond)
        yield distance(outcome(stand_in), outcome(stand_in.model)) <= noise
        stand_in.model = model

    if stand_in.layout == PACKED and "DynamicSlidingWindowLayer" in layers_of(config):
        with _narrow_windows(causal):
            narrow = outcome(model)
            yield distance(outcome(stand_in), narrow) <= noise
        yield distance(narrow, padded) > noise  # otherwise the windows were not narrow
    yield stand_in.layout == layout  # packed rows that do not reach all attention layers are given up


def distance(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """
    The largest relative difference of log-probabilities, which come first, and of gradients. NaN, which no comparison
    accepts, if any of them is NaN.
    """
    sizes = torch.stack([tensor.float().norm() for tensor in theirs])
    of_gradients = sizes[1:]
    sizes[1:] = of_gradients.clamp(min=1e-3 * of_gradients.norm())  # smaller ones may be rounding alone
    pairs = zip(ours, theirs, strict=True)
    differences = torch.stack([(our.float() - their.float()).norm() for our, their in pairs])
    return (differences / sizes).max().item()


def _probe_rows(vocabulary: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask (3, WIDTH) of three rows. The last two have a prompt in common."""
    columns = torch.arange(WIDTH, device=device)
    first, end = torch.tensor([(0, 11), (5, 15), (5, 13)], device=device).T[:, :, None]
    mask = (first <= columns) & (columns < end)
    ids = columns.repeat(3, 1)
    ids[1:] += 5  # another prompt
    ids[2, PROMPT:] += 1  # another completion
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
