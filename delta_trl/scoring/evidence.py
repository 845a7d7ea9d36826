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
    layout, model = stand_in.layout, stand_in.model
    config = causal.config.get_text_config()
    positions = positions_of(config)
    ids, mask = _probe_rows(config.vocab_size, device)
    columns = torch.arange(WIDTH, device=device)

    def outcome(runs: Callable, ids: torch.Tensor = ids, width: int = WIDTH) -> list[torch.Tensor]:
        """Log-probabilities of the valid tokens, and gradients of a weighted sum of them."""
        valid = mask[: len(ids), :width]
        scored = score(_without_autocast(runs, device), ids[:, :width], valid, width - PROMPT)
        log_probs = scored[0][valid[:, PROMPT:] == 1]
        if not parameters:
            return [log_probs.detach()]
        weights = torch.linspace(1, 2, len(log_probs), device=device)
        gradients = torch.autograd.grad((log_probs * weights).sum(), parameters, materialize_grads=True)
        return [log_probs.detach(), *gradients]

    def moved(first: int) -> Callable:
        """The model with all positions moved by `first`."""

        def run(position_ids=columns, **inputs):
            return model(position_ids=(position_ids + first).expand_as(inputs["input_ids"]), **inputs)

        return run

    padded, unpadded = outcome(model), outcome(stand_in)
    # The first row begins in the first column: cut off at its end, it has no padding at all
    length = int(mask[0].sum())
    alone = outcome(model, ids[:1], length)
    rounding = distance(alone, outcome(model, ids[:1]))
    yield rounding <= MOST
    noise = max(LEAST, NOISE * rounding)
    repeated = NOISE * distance(outcome(model)[:1], padded[:1])  # 0 unless kernels add in random order
    yield distance(unpadded, padded) <= noise

    others = ids.clone()
    others[0] = (ids[0] + 1) % config.vocab_size
    rest = slice(length - PROMPT, None)  # completion tokens of the other rows
    yield distance([outcome(stand_in, others)[0][rest]], [unpadded[0][rest]]) <= repeated

    if WIDTH <= positions < sys.maxsize:
        # Rotary embeddings may depend on the highest position, which padding has here
        highest = columns.repeat(len(ids), 1)
        highest[:, -1] = positions - 1
        far = outcome(lambda **inputs: model(position_ids=highest, **inputs))
        yield distance(far[:1], outcome(moved(0))[:1]) <= repeated
        stand_in.model = moved(positions - WIDTH)
        yield distance(outcome(stand_in), outcome(stand_in.model)) <= noise
        stand_in.model = model

    if stand_in.layout == PACKED and "DynamicSlidingWindowLayer" in layers_of(config):
        with _narrow_windows(causal):
            narrow = outcome(model)
            yield distance(outcome(stand_in), narrow) <= noise
        yield distance(narrow, padded) > noise  # otherwise the windows were not narrow
    yield stand_in.layout == layout  # packed rows that do not reach all attention layers are given up


def distance(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """The largest relative difference of log-probabilities, which come first, and of gradients."""
    sizes = [tensor.float().norm() for tensor in theirs]
    least = 1e-3 * max(sizes[1:], default=0.0)  # smaller gradients may be rounding alone
    relative = []
    for number, size in enumerate(sizes):
        difference = (ours[number].float() - theirs[number].float()).norm()
        relative.append(difference / (max(size, least) if number else size))
    return torch.stack(relative).nan_to_num(nan=torch.inf).max().item()


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
